"""The compiled engine: compiled.c behind ctypes. All arrays are numpy's; C allocates nothing and keeps nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.engine.columns import Columns
from simulator.engine.compiled_room import Room
from simulator.engine.library import NoLibraryError, library
from simulator.taskgraph import Floats, Ints, TaskGraph

_SLICE = 1_000_000
"""Events and visits of classes between two returns to Python, where an interrupt is noticed: under 0.1 s."""

Array = npt.NDArray[Any]


def is_available() -> bool:
    """Whether the library is there or could be compiled."""
    return _load() is not None


def missing_words() -> str:
    """Why there is no library; "" where there is one."""
    _load()
    return _missing[-1] if _missing else ""


def run_compiled(columns: Columns) -> tuple[Floats, Floats]:
    """Start and end of every task in seconds; infinite where a task never started or ended."""
    loaded = _load()
    room = columns.kept.get(Room, lambda: Room.of(columns))
    start_s, end_s = np.empty(len(columns)), np.empty(len(columns))
    entered = room.enter(columns, start_s, end_s)
    address = _address(entered[0])  # the others are what it points to
    loaded.begin(address)
    while loaded.advance(address, _SLICE):
        pass
    return start_s, end_s


def compiled_chain_s(graph: TaskGraph, seconds: Floats) -> float:
    """See `longest_chain_s`; the graph's dependencies are checked already."""
    start = np.ascontiguousarray(graph.dependency_start)
    dependencies, seconds = np.ascontiguousarray(graph.dependencies), np.ascontiguousarray(seconds)
    end, following, stack = np.full(len(graph), -1.0), start.copy(), np.empty(len(graph), dtype=np.int64)
    arrays = (start, dependencies, seconds, end, following, stack)
    return float(_load().longest_chain(len(graph), *map(_address, arrays)))


def compiled_binding_chain(graph: TaskGraph, start_s: Floats, end_s: Floats, before: Ints) -> Ints:
    """See `binding_tasks`; the graph's dependencies are checked already."""
    columns = (graph.dependency_start, graph.dependencies, start_s, end_s, before)
    arrays: list[Array] = [*map(np.ascontiguousarray, columns)]
    chain = np.empty(len(graph) + 1, dtype=np.int64)
    count = _load().binding_chain(len(graph), *map(_address, (*arrays, chain)))
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


def compiled_previous(start_s: Floats, end_s: Floats, owner: Ints, owners: int) -> Ints:
    """For each span the last one of some length that its owner has before it, or -1; see `previous_of_owner`."""
    before = np.empty(len(owner), dtype=np.int64)
    _call_by_row("previous", owner, (start_s, end_s), owners, (before,))
    return before


def fill_stage_values(values: Floats, stage_s: Sequence[Sequence[Floats]], cut_s: Floats, added: bool) -> None:
    """Fill the values of contiguous stages of L layers, see compiled_stages.h.

    values: by devices so far, stages so far, replicas of the last stage and layers so far, shape (devices+1, stages+1,
    replicas+1, L+1), infinite but for no stages on no device. stage_s: by first device and replicas, from 1 on, arrays
    of shape (L+1, L+1). cut_s: before a device, shared so many ways, shape (devices, replicas+1, L+1). added: costs are
    added to values, otherwise the larger counts.
    """
    devices, stages, replicas, bounds = (size - 1 for size in values.shape)
    arrays = {id(array): np.ascontiguousarray(array) for row in stage_s for array in row}
    addresses = {number: _address(array) for number, array in arrays.items()}
    table = np.zeros((devices, replicas + 1), dtype=np.int64)
    for device, row in enumerate(stage_s):
        table[device, 1 : 1 + len(row)] = [addresses[id(array)] for array in row]
    columns: list[Array] = [table, np.ascontiguousarray(cut_s), np.empty(bounds + 1), values]
    sizes = (bounds + 1, devices, replicas, stages, int(added))
    _load().stage_values(*sizes, *map(_address, columns))


def _call_by_row(
    name: str, owner: Ints, columns: tuple[Floats, Floats], owners: int, results: tuple[Array, ...]
) -> None:
    """A function of compiled_rows.h; owners are checked already."""
    count = len(owner)
    inputs: list[Array] = [*map(np.ascontiguousarray, (owner, *columns))]
    rows = np.empty(owners + 2 + 2 * count, dtype=np.int64)  # first, order and room
    first = _address(rows)
    places = (first, first + rows.itemsize * (owners + 2), first + rows.itemsize * (owners + 2 + count))
    getattr(_load(), name)(count, *map(_address, inputs), owners, *places, *map(_address, results))


def _address(array: Array) -> int:
    """Where an array's values begin."""
    return array.ctypes.data


_missing: list[str] = []


@cache
def _load() -> Any:
    """The library; None where there is none, see `is_available`."""
    try:
        return _typed(ctypes.CDLL(str(library())))
    except (NoLibraryError, OSError, AttributeError) as error:  # one that was shipped may be for another machine
        _missing.append(str(error))
        return None


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions. Raises AttributeError where it lacks one."""
    loaded.begin.argtypes, loaded.begin.restype = (ctypes.c_void_p,), None
    loaded.advance.argtypes, loaded.advance.restype = (ctypes.c_void_p, ctypes.c_int64), ctypes.c_int64
    loaded.longest_chain.argtypes = (ctypes.c_int64, *(ctypes.c_void_p,) * 6)
    loaded.longest_chain.restype = ctypes.c_double
    loaded.binding_chain.argtypes = (ctypes.c_int64, *(ctypes.c_void_p,) * 6)
    loaded.binding_chain.restype = ctypes.c_int64
    for function, further in ((loaded.covered, 5), (loaded.peaks, 4), (loaded.previous, 4)):
        function.argtypes = (ctypes.c_int64, *(ctypes.c_void_p,) * 3, ctypes.c_int64, *(ctypes.c_void_p,) * further)
        function.restype = None
    loaded.stage_values.argtypes, loaded.stage_values.restype = (*(ctypes.c_int64,) * 5, *(ctypes.c_void_p,) * 4), None
    return loaded
