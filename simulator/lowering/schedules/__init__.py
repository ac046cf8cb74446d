"""In which order a device runs the passes of its micro-batches: one file per schedule. This folder is the registry.

A file that does not start with "_" is a schedule; it exposes `SCHEDULE`, a record whose name is the schedule's name
everywhere. Its order is a function of (devices, device, micro-batches, chunks) that yields the instructions of that
device; the device waits for the next one even when a later one is ready, as the runtimes do. `device` counts along the
pipeline. Each is drawn in its docstring, one column per unit of time; digits are forward passes, letters (a = 0)
backward.

A device holds `chunks` stages, numbered along the network. Where a schedule splits the backward pass, BACKWARD makes
the gradients of the inputs, for which the stage before waits, and WEIGHT those of the parameters (drawn as capital
letters), which fill bubbles.

"dataflow" has no order: a device runs what is ready, the oldest micro-batch first and backward before the forward of a
younger one. It serves every plan, also those that have no stages.

`_stages` says which layers of a plan are a stage.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.errors import require_name
from simulator.lowering.schedules._schedule import Instruction, Schedule, round_length
from simulator.registry import entries, load_entry

__all__ = ["SCHEDULES", "Instruction", "Schedule", "load", "round_length"]


def _records() -> dict[str, Schedule]:
    records: list[Schedule] = [load_entry(__name__, "schedule", name).SCHEDULE for name in entries(__name__)]
    return {record.name: record for record in sorted(records, key=lambda record: record.order is not None)}


SCHEDULES: Mapping[str, Schedule] = _records()
"""By name, the one without an order first."""


def load(name: str) -> Schedule:
    """The schedule called `name`. Raises UnknownNameError."""
    require_name("schedule", name, SCHEDULES)
    return SCHEDULES[name]
