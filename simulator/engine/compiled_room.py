"""What the compiled engine works in: a Run of compiled_state.h and all that it points to, laid out once for all runs of
the same tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.engine.columns import Columns
from simulator.engine.library import STATE
from simulator.taskgraph import Floats, Ints

_NONE, _NOT_WAITING, _ROW = -1, -2, 8  # as in C
_NUMPY_TYPES = {"i64": np.int64, "i32": np.int32, "double": np.float64, "*": np.int64}
_WORD, _LINE = 8, 64
"""Bytes of each field of a Run, and of a cache line."""

Array = npt.NDArray[Any]
Part = Array | int
"""What an array of the engine's own holds at first or, where it is written before it is read, how many bytes it has."""


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """A run before it begins, of any durations, over links of any speed.

    run: its fields, of those in the room their places. inside: which these are. image: what the room begins with;
    size: its bytes in all. inputs: what the run reads, whose addresses stand in its fields.
    """

    run: Array
    inside: npt.NDArray[np.bool_]
    image: npt.NDArray[np.uint8]
    size: int
    inputs: Mapping[str, Array]

    @classmethod
    def of(cls, columns: Columns) -> Room:
        """The room for the tasks of `columns`."""
        parts = {**_shared(columns), **_queues(columns), **_extras(columns)}
        in_order = sorted(parts, key=lambda name: isinstance(parts[name], int))  # those of the image first
        run, inputs, images, size = np.zeros((), dtype=_record("Run")), _inputs(columns), [], 0
        for name in in_order:
            part = parts[name]
            run[name] = size
            length = part if isinstance(part, int) else part.nbytes
            size += -(-length // _LINE) * _LINE
            if not isinstance(part, int):
                images.append(np.zeros(size - int(run[name]), dtype=np.uint8))
                images[-1][:length] = part.view(np.uint8).ravel()
        for name, value in {**_numbers(columns), **{name: array.ctypes.data for name, array in inputs.items()}}.items():
            run[name] = value
        inside = np.array([name in parts for name, _ in _fields("Run")])
        return cls(run, inside, np.concatenate(images), size, inputs)

    def enter(self, columns: Columns, start_s: Floats, end_s: Floats) -> list[Array]:
        """A run of these durations, then what it points to, all of which stays until it has ended."""
        memory = np.empty(self.size + _LINE, dtype=np.uint8)
        base = -memory.ctypes.data % _LINE
        memory[base : base + len(self.image)] = self.image
        for part, struct, name, values in (
            ("resource", "Resource", "capacity", columns.capacity),
            ("class_", "Class", "cap", columns.class_cap),
            ("use", "Use", "weight", columns.weight),
        ):
            records = memory[base + int(self.run[part]) :][: _bytes(struct, len(values))]
            records.view(_record(struct))[name] = values
        run = self.run.copy()
        fields = run.reshape(1).view(np.int64)
        fields[self.inside] += memory.ctypes.data + base
        names = ("delay_s", "work", "bytes", "alone_s")
        durations = {name: np.ascontiguousarray(getattr(columns, name)) for name in names}
        for name, array in {**durations, "start_s": start_s, "end_s": end_s}.items():
            run[name] = array.ctypes.data
        return [run, memory, *durations.values()]


@cache
def _fields(struct: str) -> tuple[tuple[str, str], ...]:
    """(name, type) of every field of a struct of the C header, so that the two cannot disagree."""
    source = re.sub(r"/\*.*?\*/", "", STATE.read_text(), flags=re.DOTALL)
    fields: list[tuple[str, str]] = []
    (body,) = re.findall(rf"typedef struct {{([^{{}}]*)}} {struct};", source)
    for declaration in body.split(";")[:-1]:
        kind, names = declaration.replace("const ", "").split(maxsplit=1)
        fields += [(name.strip(" *"), "*" if "*" in name else kind) for name in names.split(",")]
    return tuple(fields)


@cache
def _record(struct: str) -> np.dtype[np.void]:
    """A struct as numpy's, laid out as C does."""
    return np.dtype([(name, _NUMPY_TYPES[kind]) for name, kind in _fields(struct)], align=True)


def _records(struct: str, count: int, **values: Any) -> Array:
    """`count` records of a struct: these values, 0 elsewhere."""
    made = np.zeros(count, dtype=_record(struct))
    for name, value in values.items():
        made[name] = value
    return made


def _bytes(struct: str, count: int) -> int:
    return count * _record(struct).itemsize


def _numbers(columns: Columns) -> dict[str, float]:
    return {
        "tasks": len(columns),
        "devices": columns.devices,
        "resources": len(columns.capacity),
        "fixed_classes": len(columns.class_cap),
        "next_class": len(columns.class_cap),
        "has_launches": len(columns.launch_s) > 0,
        "has_lines": len(columns.line) > 0,
        "has_overlap": columns.overlap_rate < 1,
        "has_turns": len(columns.turn_s) > 0,
        "has_cores": len(columns.core_device) > 0,
        "overlap_rate": columns.overlap_rate,
        "due_s": inf,
        "first_end_s": inf,
        "turn_first": _NONE,
        "turn_last": _NONE,
    }


def _inputs(columns: Columns) -> dict[str, Array]:
    """The columns that C reads as they are, whatever the speed of links."""
    names = (
        "route", "priority", "activity_class", "launch_s", "host_waits", "dependency_start", "dependencies",
        "core_start", "core_device", "turn_s", "core_s_per_byte",
    )  # fmt: skip
    arrays = {
        **{name: getattr(columns, name) for name in names},
        "device_of_task": columns.device,
        "line_of_route": columns.line,
        "touched_start": columns.touched.start,
        "touched": columns.touched.values,
        "neighbour_start": columns.neighbours.start,
        "neighbour": columns.neighbours.values,
        "spare": columns.spare,
    }
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _shared(columns: Columns) -> dict[str, Part]:
    """Resources, and classes with their queues; after those of the columns one for each activity of core work."""
    on_cores, resources = _core_works(columns), len(columns.capacity)
    works = np.arange(len(on_cores))
    first_use = np.append(columns.class_start, columns.class_start[-1] + 1 + works)  # [classes + 1]
    classes, fixed = len(first_use) - 1, len(columns.class_cap)
    first_ending = _first(columns.activity_class[columns.activity_class >= 0], fixed)
    first_ending = np.append(first_ending, first_ending[-1] + 1 + works)
    class_ = _records("Class", classes, first_use=first_use[:-1], end_use=first_use[1:], first_ending=first_ending[:-1])
    use = _records("Use", int(first_use[-1]), weight=1.0)
    use["resource"] = np.append(columns.resource, on_cores)
    first_user = _first(use["resource"], resources)
    level_size = _level_sizes(classes)
    return {
        "class_": class_,
        "use": use,
        "user": _bytes("User", int(first_user[-1])),
        "resource": _records("Resource", resources, first_user=first_user[:-1]),
        "ending": _bytes("Entry", int(first_ending[-1])),
        "limit": _bytes("Limit", classes),
        "followed": _bytes("Entry", resources),
        **dict.fromkeys(("changed", "visited"), _WORD * resources),
        **dict.fromkeys(("stale", "capped"), _WORD * classes),
        **{name: np.zeros(classes) for name in ("rate", "served", "since_s")},
        "share": np.full(resources, inf),
        "level_size": level_size,
        "ends_s": np.full(level_size.sum(), inf),
        "done": _WORD * (len(columns) + len(works)),
        **dict.fromkeys(("core_task", "free_class"), _WORD * len(works)),
    }


def _level_sizes(count: int) -> Ints:
    """How many values stand on each level above `count` of them, theirs first: whole rows, and one at the end."""
    sizes: list[int] = []
    while count > 1 or not sizes:
        count = -(-count // _ROW)
        sizes.append(_ROW * count)
    return np.array([*sizes, 1], dtype=np.int64)


def _core_works(columns: Columns) -> Ints:
    """The resource of every activity of core work that can begin, each transfer's once."""
    if not len(columns.core_device):
        return columns.core_device
    of_device = columns.resource[columns.class_start[columns.routes + columns.core_device]]
    transfers = np.bincount(columns.route[columns.route >= 0], minlength=columns.routes)
    return np.repeat(of_device, np.repeat(transfers, np.diff(columns.core_start)))


def _first(groups: Array, count: int) -> Array:
    """Where each of `count` groups begins, and the last ends, when their members stand one group after the other."""
    return np.append(0, np.cumsum(np.bincount(groups, minlength=count)))


def _queues(columns: Columns) -> dict[str, Part]:
    """Tasks, devices and timers. Until the next instant each task has at most two timers or events."""
    tasks, devices = len(columns), columns.devices
    first_queued = _first(columns.device[columns.route < 0], devices)[:-1]
    return {
        "task": _bytes("Task", tasks),
        "first_successor": np.zeros(tasks + 1, dtype=np.int32),
        "successor": 4 * len(columns.dependencies),
        "device": _records("Device", devices, first=_NONE, first_queued=first_queued),
        "woken": _WORD * devices,
        "ready": _bytes("Entry", tasks),
        "timer": _bytes("Entry", 2 * tasks),
        "instant": 2 * _WORD * tasks,
        "ready_transfer": _WORD * tasks,
    }


def _extras(columns: Columns) -> dict[str, Part]:
    """Lines, turns and parts, of no length where the runtime does not ask for them."""
    tasks = len(columns)
    turns = tasks if len(columns.turn_s) else 0
    return {
        "line": _records("Line", int(columns.line.max(initial=-1)) + 1, first=_NONE, last=_NONE),
        "next_in_line": 4 * tasks if len(columns.line) else 0,
        "turn_next": np.full(turns, _NOT_WAITING),
        "turn_previous": _WORD * turns,
        "parts": _WORD * tasks if len(columns.core_device) else 0,
    }
