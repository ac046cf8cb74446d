"""Combined 1F1B: the exchanges of experts move while the device computes another micro-batch."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.schedules._schedule import Instruction, Schedule
from simulator.lowering.schedules.interleaved import interleaved
from simulator.lowering.schedules.one_forward_one_backward import one_forward_one_backward


def combined_1f1b(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """1F1B, interleaved where a device has several stages, whose backward passes the next forward pass joins.

    Megatron Core's combined 1F1B (`--overlap-moe-expert-parallel-comm`), which one device runs, too, with one forward
    pass ahead. Of a block, x is what the experts compute, y the rest; what they exchange moves between the two:

    backward a   y   x   y   x   y
    forward 1      y   x   y   x   y
    """
    order = interleaved if chunks > 1 else one_forward_one_backward
    return order(devices, device, microbatches, chunks)


SCHEDULE = Schedule(name="combined-1f1b", order=combined_1f1b, several_stages=True, joins_passes=True)
