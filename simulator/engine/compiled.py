"""The compiled engine: compiled.c behind ctypes. All arrays are numpy's; C allocates nothing and keeps nothing."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.engine.columns import Columns
from simulator.engine.library import SOURCE, library
from simulator.taskgraph import Floats

_SLICE = 1_000_000
"""Events and visits of classes between two returns to Python, where an interrupt is noticed: under 0.1 s."""
_NOT_WAITING = -2
_ENTRY = np.dtype([("key", np.float64), ("tie", np.int64), ("event", np.int64)])
_C_TYPES = {"i64": ctypes.c_int64, "double": ctypes.c_double}

Arrays = Mapping[str, npt.NDArray[Any]]


def is_available() -> bool:
    """Whether the library is there or could be compiled."""
    return _load() is not None


def run_compiled(columns: Columns) -> tuple[Floats, Floats]:
    """Start and end of every task in seconds; infinite where a task never started or ended."""
    loaded = _load()
    if loaded is None:
        raise RuntimeError("is_available() is False")
    numbers, arrays = _inputs(columns)
    arrays = {**arrays, **_state(columns, arrays)}
    run = _run_type()(**numbers, **{name: array.ctypes.data for name, array in arrays.items()})
    loaded.begin(ctypes.byref(run))
    while loaded.advance(ctypes.byref(run), _SLICE):
        pass
    return arrays["start_s"], arrays["end_s"]


@cache
def _load() -> ctypes.CDLL | None:
    path = library()
    if path is None:
        return None
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:  # made for another machine
        return None
    loaded.run_size.restype = ctypes.c_int64
    loaded.begin.argtypes, loaded.begin.restype = (ctypes.c_void_p,), None
    loaded.advance.argtypes, loaded.advance.restype = (ctypes.c_void_p, ctypes.c_int64), ctypes.c_int64
    return loaded if loaded.run_size() == ctypes.sizeof(_run_type()) else None


@cache
def _run_type() -> type[ctypes.Structure]:
    """The struct Run with the fields that the C source declares, so that the two cannot disagree."""
    body = re.search(r"typedef struct \{([^{}]*)\} Run;", SOURCE.read_text())
    if body is None:
        raise RuntimeError(f"{SOURCE} declares no struct Run")
    fields: list[tuple[str, Any]] = []
    for declaration in re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL).split(";")[:-1]:
        kind, names = declaration.replace("const ", "").split(maxsplit=1)
        for name in names.split(","):
            pointer, bare = "*" in name, name.replace("*", "").strip()
            fields.append((bare, ctypes.c_void_p if pointer else _C_TYPES[kind]))
    return type("Run", (ctypes.Structure,), {"_fields_": fields})


def _inputs(columns: Columns) -> tuple[dict[str, float], dict[str, npt.NDArray[Any]]]:
    """What is run, as numbers and arrays; with one further class for each activity of core work."""
    classes, works = len(columns.class_cap), _core_works(columns)
    extra = np.arange(works)
    class_start = np.append(columns.class_start, columns.class_start[-1] + 1 + extra)
    compute, shared = columns.device >= 0, columns.activity_class
    arrays = {
        **{name: getattr(columns, name) for name in _COLUMNS},
        "class_start": class_start,
        "class_of_use": np.repeat(np.arange(classes + works), np.diff(class_start)),
        "resource": np.append(columns.resource, np.zeros(works, dtype=np.int64)),
        "weight": np.append(columns.weight, np.ones(works)),
        "first_ready": _first(columns.device[compute], columns.devices),
        "first_ending": np.append(_first(shared[shared >= 0], classes), (shared >= 0).sum() + 1 + extra),
        "touched_start": columns.touched.start,
        "touched": columns.touched.values,
        "neighbour_start": columns.neighbours.start,
        "neighbour": columns.neighbours.values,
    }
    numbers = {
        "tasks": len(columns),
        "devices": columns.devices,
        "resources": len(columns.capacity),
        "fixed_classes": classes,
        "has_lines": len(columns.line) > 0,
        "has_overlap": columns.overlap_rate < 1,
        "has_turns": len(columns.turn_s) > 0,
        "has_cores": len(columns.core_device) > 0,
        "overlap_rate": columns.overlap_rate,
        "due_s": inf,
        "turn_first": -1,
        "turn_last": -1,
        "next_class": classes,
    }
    return numbers, {name: np.ascontiguousarray(array) for name, array in arrays.items()}


_COLUMNS = (
    "device", "route", "priority", "activity_class", "dependency_start", "dependencies", "line", "core_start",
    "core_device", "delay_s", "work", "bytes", "capacity", "turn_s", "core_s_per_byte", "alone_s",
)  # fmt: skip


def _core_works(columns: Columns) -> int:
    """How many activities of core work can begin, each transfer's once."""
    if not len(columns.core_device):
        return 0
    return int(np.append(np.diff(columns.core_start), 0)[columns.route].sum())


def _first(groups: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Where each of `count` groups begins when their members stand one group after the other."""
    return np.append(0, np.cumsum(np.bincount(groups, minlength=count)))


def _state(columns: Columns, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Arrays that C works on; memory that it never touches is never taken."""
    tasks, devices, resources = len(columns), columns.devices, len(columns.capacity)
    uses, classes = len(arrays["class_of_use"]), len(arrays["class_start"]) - 1
    lines, works = int(columns.line.max(initial=-1)) + 1, classes - len(columns.class_cap)
    endings = int(arrays["first_ending"][-1]) + 1
    cap = np.zeros(classes)
    cap[: len(columns.class_cap)] = columns.class_cap
    zeros = {
        "waits": tasks, "successor_start": tasks + 1, "successor": len(columns.dependencies), "ready_transfer": tasks,
        "ready_count": devices, "idle": devices, "woken": devices, "is_woken": devices, "active": classes,
        "due": classes, "class_seen": classes, "next_use": uses, "previous_use": uses, "resource_seen": resources,
        "is_changed": resources + classes, "changed": resources + classes, "visited": resources, "pending": classes,
        "full": resources, "done": tasks + works, "line_next": tasks if lines else 0, "in_flight": devices,
        "turn_previous": tasks if len(columns.turn_s) else 0, "parts": tasks if works else 0, "core_task": works,
        "free_class": works, "instant": 2 * tasks,
    }  # fmt: skip
    floats = {
        "start_s": tasks, "end_s": tasks, "served": classes, "rate": classes, "since_s": classes,
        "class_due_s": classes, "left": resources, "load": resources, "ratio": resources,
    }  # fmt: skip
    entries = {"timer": 2 * tasks, "ready": tasks, "ending": endings, "affected": classes}
    return {
        **{name: np.zeros(size, dtype=np.int64) for name, size in zeros.items()},
        **{name: np.zeros(size) for name, size in floats.items()},
        **{name: np.zeros(size, dtype=_ENTRY) for name, size in entries.items()},
        "cap": cap,
        "due_place": np.full(classes, -1),
        "first_use": np.full(resources, -1),
        "line_first": np.full(lines, -1),
        "line_last": np.full(lines, -1),
        "turn_next": np.full(tasks if len(columns.turn_s) else 0, _NOT_WAITING),
    }
