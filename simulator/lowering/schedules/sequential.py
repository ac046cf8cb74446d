"""Gradient accumulation: one micro-batch after the other, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._schedule import Instruction, Schedule
from simulator.taskgraph import Kind


def sequential(devices: int, device: int, microbatches: int, chunks: int = 1) -> Iterator[Instruction]:
    """A micro-batch begins when the one before has ended; with several stages each waits for the others.

    stage 0  0  a1  b2  c
    stage 1   0a  1b  2c
    """
    for m in range(microbatches):
        yield Instruction(Kind.FORWARD, m)
        yield Instruction(Kind.BACKWARD, m)


SCHEDULE = Schedule(name="sequential", order=sequential)
