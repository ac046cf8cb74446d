"""Interleaved 1F1B: several stages on each device."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._schedule import Instruction, Rounds, Schedule


def interleaved(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """1F1B over several stages per device, stage s on device s mod p (Narayanan et al., SC 2021, section 2.2).

    Here 2 devices, of 2 stages each, and 4 micro-batches:

    stage 0  01012a3b2a3b c dcd
    stage 1   010a1b2a3b2c3dcd

    Micro-batches go in rounds of p, each through the first chunk, then the second. The bubble is 1/chunks of 1F1B's.
    """
    rounds = Rounds(devices, microbatches, chunks)
    warm = min((chunks - 1) * rounds.block + 2 * (devices - 1 - device), rounds.total)
    for count in range(rounds.total + warm):
        if count < rounds.total:
            yield rounds.forward(count)
        if count >= warm:
            yield rounds.backward(count - warm)


SCHEDULE = Schedule(name="interleaved", order=interleaved, several_stages=True, receives="early")
