"""Zero-bubble: weight gradients fill the bubbles."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._schedule import Instruction, Rounds, Schedule


def zero_bubble(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """Interleaved 1F1B whose weight gradients wait for bubbles (Qi et al., ICLR 2024, ZB-H1).

    stage 0  012  AA3BBCCDD
    stage 1   01 a2bA3cBdCD
    stage 2    0a1b2cA3dBCD

    The first stage needs no gradient of its input, so all of its backward pass is weight gradient here. As in torch's
    InterleavedZeroBubble, device i puts off the weight gradients of i passes, so that input gradients leave sooner.
    """
    rounds = Rounds(devices, microbatches, chunks)
    warm = min((chunks - 1) * rounds.block + devices - 1 - device, rounds.total)
    for count in range(rounds.total + warm):
        if count < rounds.total:
            yield rounds.forward(count)
        if count >= warm:
            yield rounds.backward(count - warm)
            if count - warm >= device:
                yield rounds.weight(count - warm - device)
    for late in range(max(rounds.total - device, 0), rounds.total):
        yield rounds.weight(late)


SCHEDULE = Schedule(name="zero-bubble", order=zero_bubble, several_stages=True, splits_backward=True, receives="early")
