"""V-Half: the zero-bubble schedule that goes down and up with half of the activations of 1F1B."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._down_and_up import building_block
from simulator.lowering.schedules._schedule import Instruction, Schedule


def v_half(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """Two stages a device, s and 2p - 1 - s, at distances of 2, 1, 2 and 1 passes (Qi et al., NeurIPS 2024).

    stage 0  01   0aA2 1bBAA32cCBB3dDCC   DD
    stage 1   0  01 aA12abB2A3bcC3B cdDC dD
    stage 2    00  11aAaA22bBbB33cCcC dDdD

    A device holds about p chunks, half of what 1F1B holds in stages of two chunks.
    """
    return building_block(devices, device, microbatches, (2, 1, 2, 1))


SCHEDULE = Schedule(name="v-half", order=v_half, several_stages=True, splits_backward=True, turns=True)
