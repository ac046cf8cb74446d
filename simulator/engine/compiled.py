"""The compiled engine: compiled.c behind ctypes. All arrays are numpy's; C allocates nothing and keeps nothing."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.engine.columns import Columns
from simulator.engine.library import STATE, library
from simulator.taskgraph import Floats, Ints, TaskGraph

_SLICE = 1_000_000
"""Events and visits of classes between two returns to Python, where an interrupt is noticed: under 0.1 s."""
_NONE, _NOT_WAITING, _ROW = -1, -2, 8  # as in C
_C_TYPES = {"i64": (ctypes.c_int64, np.int64), "i32": (ctypes.c_int32, np.int32), "double": (ctypes.c_double, float)}

Array = npt.NDArray[Any]


def is_available() -> bool:
    """Whether the library is there or could be compiled."""
    return _load() is not None


def run_compiled(columns: Columns) -> tuple[Floats, Floats]:
    """Start and end of every task in seconds; infinite where a task never started or ended."""
    loaded = _load()
    if loaded is None:
        raise RuntimeError("is_available() is False")
    arrays = {**_inputs(columns), **_shared(columns), **_queues(columns), **_extras(columns)}
    addresses = {name: array.ctypes.data for name, array in arrays.items()}
    run = ctypes.byref(_run_type()(**_numbers(columns), **addresses))
    loaded.begin(run)
    while loaded.advance(run, _SLICE):
        pass
    return arrays["start_s"], arrays["end_s"]


def compiled_chain_s(graph: TaskGraph, seconds: Floats) -> float:
    """See `longest_chain_s`; the graph's dependencies are checked already."""
    loaded = _load()
    if loaded is None:
        raise RuntimeError("is_available() is False")
    start = np.ascontiguousarray(graph.dependency_start)
    dependencies, seconds = np.ascontiguousarray(graph.dependencies), np.ascontiguousarray(seconds)
    end, following, stack = np.full(len(graph), -1.0), start.copy(), np.empty(len(graph), dtype=np.int64)
    arrays = (start, dependencies, seconds, end, following, stack)
    return float(loaded.longest_chain(len(graph), *(array.ctypes.data for array in arrays)))


def compiled_binding_chain(graph: TaskGraph, start_s: Floats, end_s: Floats, before: Ints) -> Ints:
    """See `binding_tasks`; the graph's dependencies are checked already."""
    loaded = _load()
    if loaded is None:
        raise RuntimeError("is_available() is False")
    columns = (graph.dependency_start, graph.dependencies, start_s, end_s, before)
    arrays: list[Array] = [*map(np.ascontiguousarray, columns)]
    chain = np.empty(len(graph) + 1, dtype=np.int64)
    count = loaded.binding_chain(len(graph), *(array.ctypes.data for array in (*arrays, chain)))
    return chain[:count]


def compiled_covered_s(start_s: Floats, end_s: Floats, owner: Ints, owners: int) -> Floats:
    """Seconds that the spans of each of `owners` cover; owner: of each span."""
    covered_s = np.empty(owners)
    _call_by_row("covered", owner, (start_s, end_s), owners, (np.empty(len(owner)), covered_s))
    return covered_s


def compiled_peaks(moments_s: Floats, changes: Floats, owner: Ints, held_at_first: Floats) -> Floats:
    """The most that each owner holds, with what each entry adds to its owner's at a moment; shape (owners,)."""
    peak = np.array(held_at_first, dtype=np.float64)
    _call_by_row("peaks", owner, (moments_s, changes), len(peak), (peak,))
    return peak


def _call_by_row(
    name: str, owner: Ints, columns: tuple[Floats, Floats], owners: int, results: tuple[Array, ...]
) -> None:
    """A function of compiled_rows.h; owners are checked already."""
    loaded = _load()
    if loaded is None:
        raise RuntimeError("is_available() is False")
    count = len(owner)
    inputs: list[Array] = [*map(np.ascontiguousarray, (owner, *columns))]
    rows: list[Array] = [np.empty(size, dtype=np.int64) for size in (owners + 2, count, count)]
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, *rows, *results)]
    getattr(loaded, name)(ctypes.c_int64(count), *addresses[:3], ctypes.c_int64(owners), *addresses[3:])


@cache
def _load() -> ctypes.CDLL | None:
    path = library()
    if path is None:
        return None
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:  # made for another machine
        return None
    loaded.begin.argtypes, loaded.begin.restype = (ctypes.c_void_p,), None
    loaded.advance.argtypes, loaded.advance.restype = (ctypes.c_void_p, ctypes.c_int64), ctypes.c_int64
    loaded.longest_chain.argtypes = (ctypes.c_int64, *(ctypes.c_void_p,) * 6)
    loaded.longest_chain.restype = ctypes.c_double
    loaded.binding_chain.argtypes = (ctypes.c_int64, *(ctypes.c_void_p,) * 6)
    loaded.binding_chain.restype = ctypes.c_int64
    loaded.covered.restype = loaded.peaks.restype = None
    return loaded


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
def _run_type() -> type[ctypes.Structure]:
    fields = [(name, ctypes.c_void_p if kind == "*" else _C_TYPES[kind][0]) for name, kind in _fields("Run")]
    return type("Run", (ctypes.Structure,), {"_fields_": fields})


@cache
def _record(struct: str) -> np.dtype[np.void]:
    """A struct as numpy's, laid out as C does."""
    return np.dtype([(name, _C_TYPES[kind][1]) for name, kind in _fields(struct)], align=True)


def _records(struct: str, count: int, **values: Any) -> Array:
    """`count` records of a struct: these values, 0 elsewhere. Memory that is never touched is never taken."""
    made = np.zeros(count, dtype=_record(struct))
    for name, value in values.items():
        made[name] = value
    return made


def _numbers(columns: Columns) -> dict[str, float]:
    return {
        "tasks": len(columns),
        "devices": columns.devices,
        "resources": len(columns.capacity),
        "fixed_classes": len(columns.class_cap),
        "next_class": len(columns.class_cap),
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
    """The columns that C reads as they are."""
    names = (
        "route", "priority", "activity_class", "dependency_start", "dependencies", "core_start",
        "core_device", "delay_s", "work", "bytes", "turn_s", "core_s_per_byte", "alone_s",
    )  # fmt: skip
    arrays = {
        **{name: getattr(columns, name) for name in names},
        "device_of_task": columns.device,
        "line_of_route": columns.line,
        "touched_start": columns.touched.start,
        "touched": columns.touched.values,
        "neighbour_start": columns.neighbours.start,
        "neighbour": columns.neighbours.values,
    }
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _shared(columns: Columns) -> dict[str, Array]:
    """Resources, and classes with their queues; after those of the columns one for each activity of core work."""
    on_cores, resources = _core_works(columns), len(columns.capacity)
    works = np.arange(len(on_cores))
    first_use = np.append(columns.class_start, columns.class_start[-1] + 1 + works)  # [classes + 1]
    classes, fixed = len(first_use) - 1, len(columns.class_cap)
    first_ending = _first(columns.activity_class[columns.activity_class >= 0], fixed)
    first_ending = np.append(first_ending, first_ending[-1] + 1 + works)
    class_ = _records("Class", classes, first_use=first_use[:-1], end_use=first_use[1:], first_ending=first_ending[:-1])
    class_["cap"][:fixed] = columns.class_cap
    use = _records("Use", int(first_use[-1]), weight=1.0)
    use["weight"][: len(columns.weight)] = columns.weight
    use["resource"] = np.append(columns.resource, on_cores)
    first_user = _first(use["resource"], resources)
    level_size = _level_sizes(classes)
    return {
        "class_": class_,
        "use": use,
        "user": _records("User", int(first_user[-1])),
        "resource": _records("Resource", resources, capacity=columns.capacity, first_user=first_user[:-1]),
        "ending": _records("Entry", int(first_ending[-1])),
        "limit": _records("Limit", classes),
        "followed": _records("Entry", resources),
        **{name: np.zeros(resources, dtype=np.int64) for name in ("changed", "visited")},
        **{name: np.zeros(classes, dtype=np.int64) for name in ("stale", "capped")},
        **{name: np.zeros(classes) for name in ("rate", "served", "since_s")},
        "share": np.full(resources, inf),
        "level_size": level_size,
        "ends_s": np.full(level_size.sum(), inf),
        "done": np.zeros(len(columns) + len(works), dtype=np.int64),
        "core_task": np.zeros(len(works), dtype=np.int64),
        "free_class": np.zeros(len(works), dtype=np.int64),
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


def _queues(columns: Columns) -> dict[str, Array]:
    """Tasks, devices and timers. Until the next instant each task has at most two timers or events."""
    tasks, devices = len(columns), columns.devices
    first_queued = _first(columns.device[columns.route < 0], devices)[:-1]
    return {
        "task": _aligned("Task", tasks),
        "start_s": np.empty(tasks),
        "end_s": np.empty(tasks),
        "first_successor": np.zeros(tasks + 1, dtype=np.int32),
        "successor": np.empty(len(columns.dependencies), dtype=np.int32),
        "device": _records("Device", devices, first=_NONE, first_queued=first_queued),
        "woken": np.zeros(devices, dtype=np.int64),
        "ready": _records("Entry", tasks),
        "timer": _records("Entry", 2 * tasks),
        "instant": np.zeros(2 * tasks, dtype=np.int64),
        "ready_transfer": np.zeros(tasks, dtype=np.int64),
    }


def _aligned(struct: str, count: int) -> Array:
    """`count` records, uninitialised, of which each fills whole cache lines."""
    record = _record(struct)
    memory = np.empty((count + 1) * record.itemsize, dtype=np.uint8)
    offset = -memory.ctypes.data % record.itemsize
    return memory[offset : offset + count * record.itemsize].view(record)


def _extras(columns: Columns) -> dict[str, Array]:
    """Lines, turns and parts, of no length where the runtime does not ask for them."""
    tasks = len(columns)
    turns = tasks if len(columns.turn_s) else 0
    return {
        "line": _records("Line", int(columns.line.max(initial=-1)) + 1, first=_NONE, last=_NONE),
        "next_in_line": np.zeros(tasks if len(columns.line) else 0, dtype=np.int32),
        "turn_next": np.full(turns, _NOT_WAITING),
        "turn_previous": np.zeros(turns, dtype=np.int64),
        "parts": np.zeros(tasks if len(columns.core_device) else 0, dtype=np.int64),
    }
