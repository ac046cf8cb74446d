"""GPipe: all forward passes, then all backward passes."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._schedule import Instruction, Schedule
from simulator.taskgraph import Kind


def gpipe(devices: int, device: int, microbatches: int, chunks: int = 1) -> Iterator[Instruction]:
    """All forwards, then all backwards (Huang et al., NeurIPS 2019), oldest first as torch runs them.

    stage 0  0123    abcd
    stage 1   0123  abcd
    stage 2    0123abcd

    The bubble is (p-1)/(m+p-1) of the time when stages are equal and links free.
    """
    for m in range(microbatches):
        yield Instruction(Kind.FORWARD, m)
    for m in range(microbatches):
        yield Instruction(Kind.BACKWARD, m)


SCHEDULE = Schedule(name="gpipe", order=gpipe, receives="late")
