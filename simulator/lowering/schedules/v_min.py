"""V-Min: the zero-bubble schedule that goes down and up with a third of the activations of 1F1B."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._down_and_up import building_block
from simulator.lowering.schedules._schedule import Instruction, Schedule


def v_min(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """Two stages a device, s and 2p - 1 - s, whose passes follow each other at once (Qi et al., NeurIPS 2024).

    stage 0  0    01aA  12bBAA23cCBB3 dDCC DD
    stage 1   0  0  1a 1Aa2Ab2Bb3Bc3CcCdD dD
    stage 2    00    11aaAA22bbBB33ccCC ddDD

    A device holds about 2p / 3 chunks, a third of what 1F1B holds in stages of two chunks. Where passes are not equally
    long, devices wait for each other at every micro-batch.
    """
    return building_block(devices, device, microbatches, (1, 1, 1, 1))


SCHEDULE = Schedule(name="v-min", order=v_min, several_stages=True, splits_backward=True, turns=True)
