"""ZB-V: the zero-bubble schedule whose stages go down the devices and up again."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._schedule import Instruction, Schedule
from simulator.taskgraph import Kind


def zb_v(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """Two stages a device, s and 2p - 1 - s, with as many activations as 1F1B and no bubble but that of the first and
    last passes, where all are equally long (Qi et al., ICLR 2024, section 6). Here 3 devices, 4 micro-batches:

    stage 0  0123 0aA1bB2cCAA3dDBB CCDD
    stage 1   012031aA2bBaA3cCbBdDc dCD
    stage 2    001122aA3aA3bBbBcCcddCDD

    Of m micro-batches it is p - 1 passes, or 4p - 2m - 2 where that is more. The last device runs chunk after chunk.
    """
    begun, ended = [0, 0], [0, 0]  # forward and backward passes by chunk
    late: list[tuple[int, int]] = []  # weight gradients that are put off: (micro-batch, chunk)

    def forward(chunk: int) -> Iterator[Instruction]:
        if begun[chunk] < microbatches:
            yield Instruction(Kind.FORWARD, begun[chunk], chunk)
        begun[chunk] += 1

    def backward(chunk: int, *, puts_off: bool = False) -> Iterator[Instruction]:
        if ended[chunk] < microbatches:
            yield Instruction(Kind.BACKWARD, ended[chunk], chunk)
            if puts_off:
                late.append((ended[chunk], chunk))
            else:
                yield Instruction(Kind.WEIGHT, ended[chunk], chunk)
        ended[chunk] += 1

    behind, total = devices - device, max(microbatches, 2 * devices - 1)
    for _ in range(2 * behind - 1):
        yield from forward(0)
    for _ in range(device):
        yield from forward(1)
        yield from forward(0)
    for _ in range(behind):
        yield from forward(1)
        yield from backward(1)
    while begun[1] < begun[0] or begun[0] < total:
        if begun[0] < total:
            yield from forward(0)
        yield from backward(0)
        yield from forward(1)
        yield from backward(1)
    for _ in range(device):
        yield from backward(0, puts_off=True)
        yield from backward(1, puts_off=True)
    for _ in range(behind):
        yield from backward(0, puts_off=True)
        if late:
            yield Instruction(Kind.WEIGHT, *late.pop(0))
    for microbatch, chunk in late:
        yield Instruction(Kind.WEIGHT, microbatch, chunk)


SCHEDULE = Schedule(name="zb-v", order=zb_v, several_stages=True, splits_backward=True, turns=True)
