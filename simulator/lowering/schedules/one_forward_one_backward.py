"""1F1B: forward and backward passes alternate after a warm-up."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._schedule import Instruction, Schedule
from simulator.taskgraph import Kind


def one_forward_one_backward(devices: int, device: int, microbatches: int, chunks: int = 1) -> Iterator[Instruction]:
    """Warm up with at most p - device forwards, then alternate (Narayanan et al., SC 2021, "1F1B-flush").

    stage 0  012  a3b c d
    stage 1   01 a2b3c d
    stage 2    0a1b2c3d

    The bubble is GPipe's, but a stage keeps the activations of at most p - device micro-batches.
    """
    warm = min(devices - device, microbatches)
    for m in range(warm):
        yield Instruction(Kind.FORWARD, m)
    for m in range(microbatches):
        yield Instruction(Kind.BACKWARD, m)
        if m + warm < microbatches:
            yield Instruction(Kind.FORWARD, m + warm)


SCHEDULE = Schedule(name="1f1b", order=one_forward_one_backward, receives="joint")
