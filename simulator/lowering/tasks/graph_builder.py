"""Making a TaskGraph block by block: tasks are appended as arrays, dependencies as pairs of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.taskgraph import Floats, Ints, Kind, Route, TaskGraph

_DEFAULTS: dict[str, tuple[type, Any]] = {
    "kind": (np.int8, 0),
    "device": (np.int64, -1),
    "route": (np.int64, -1),
    "seconds": (np.float64, 0.0),
    "bytes": (np.float64, 0.0),
    "layer": (np.int64, -1),
    "microbatch": (np.int64, -1),
    "shard": (np.int64, -1),
    "priority": (np.int64, 0),
    "allocated_bytes": (np.float64, 0.0),
    "freed_bytes": (np.float64, 0.0),
    "launch_s": (np.float64, 0.0),
    "host_waits": (np.bool_, False),
}


class GraphBuilder:
    """Collects the columns of a TaskGraph, each of shape (tasks,): seconds, bytes, and whole numbers."""

    def __init__(self) -> None:
        self._columns: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(0, dtype=dtype) for name, (dtype, _) in _DEFAULTS.items()
        }
        self._added: list[tuple[int, dict[str, Any]]] = []  # tasks that are not in the columns yet
        self._edges: list[tuple[Ints, Ints]] = []
        self._elsewhere: list[tuple[Ints, Ints, Floats]] = []
        self._routes: dict[Route, int] = {}
        self._of_pair: dict[tuple[int, int], int] = {}  # routes of messages
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, kind: Kind | Ints, count: int, **columns: npt.ArrayLike) -> Ints:
        """Append `count` tasks; each column has shape (count,) or is one value. Returns their indices (count,).

        Columns are read when one is asked for, so arrays stay as they are until then.
        """
        if not columns.keys() <= _DEFAULTS.keys():
            raise TypeError(f"unknown columns {sorted(columns.keys() - _DEFAULTS.keys())}")
        self._added.append((count, {**columns, "kind": kind}))
        self._count += count
        return np.arange(self._count - count, self._count)

    def depend(self, tasks: npt.ArrayLike, on: npt.ArrayLike) -> None:
        """Task by task, `tasks` start only after `on` have ended; one of the two may be a single index."""
        later, earlier = np.asarray(tasks, dtype=np.int64), np.asarray(on, dtype=np.int64)
        if later.shape != earlier.shape:
            shape = np.broadcast(later, earlier).shape
            later, earlier = spread(later, shape), spread(earlier, shape)
        if later.size:
            self._edges.append((later.ravel(), earlier.ravel()))

    def allocate(self, tasks: npt.ArrayLike, devices: npt.ArrayLike, sizes: npt.ArrayLike) -> None:
        """Let `tasks`, when they start, take `sizes` bytes on `devices`, which need not be theirs: arrays (n,).

        Sizes below 0 are given back when the tasks end.
        """
        on = np.asarray(devices, dtype=np.int64)
        owner = spread(np.asarray(tasks, dtype=np.int64), on.shape)
        self._elsewhere.append((owner, on, spread(np.asarray(sizes, dtype=np.float64), on.shape)))

    def route(self, route: Route) -> int:
        """The number of `route`, registered once."""
        return self._routes.setdefault(route, len(self._routes))

    def message_routes(self, sources: Ints, targets: Ints) -> Ints:
        """Route numbers of messages between pairs of devices; routes are numbered as they appear."""
        pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
        for pair in dict.fromkeys(pairs):
            if pair not in self._of_pair:
                self._of_pair[pair] = self.route(Route((pair,)))
        return np.array([self._of_pair[pair] for pair in pairs], dtype=np.int64)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column as it stands, as one array of shape (tasks,) that may be changed in place."""
        if self._added:
            self._fill()
        return self._columns[name]

    def _fill(self) -> None:
        """Put what was added into the columns."""
        for name, (dtype, default) in _DEFAULTS.items():
            before = self._columns[name]
            column: npt.NDArray[Any] = np.empty(self._count, dtype=dtype)
            column[: len(before)] = before
            end = len(before)
            for count, added in self._added:
                column[end : end + count] = added.get(name, default)
                end += count
            self._columns[name] = column
        self._added.clear()

    @property
    def routes(self) -> tuple[Route, ...]:
        """All routes by their number."""
        return tuple(self._routes)

    def keep(
        self,
        tasks: npt.NDArray[np.bool_],
        routes: Sequence[Route],
        edges: tuple[Ints, Ints],
        allocations: tuple[Ints, Ints, Floats],
    ) -> None:
        """Drop all but some tasks, shape (tasks,), which are numbered anew in their order.

        routes: those of the transfers among them. edges: as `edges` gives, and allocations: as `allocations` gives,
        both between tasks that are kept, by their numbers until now.
        """
        number = np.cumsum(tasks) - 1
        for name in _DEFAULTS:
            self._columns[name] = self.column(name)[tasks]
        self._routes.clear()
        self._of_pair.clear()
        route = self.column("route")
        route[route >= 0] = [self.route(each) for each in routes]
        self._edges = [(number[edges[0]], number[edges[1]])]
        self._elsewhere = [(number[allocations[0]], *allocations[1:])]
        self._count = int(tasks.sum())

    def repeat(self, times: int, priority_step: int) -> None:
        """Make what stands micro-batch 0 and add micro-batches 1 to times - 1 as copies of it.

        Task t of micro-batch m gets index m * len + t and a priority greater by m * priority_step.
        """
        count, later, earlier = self._count, *self.edges()
        for name in _DEFAULTS:
            self._columns[name] = _repeated(self.column(name), times)
        starts = np.arange(times) * count
        self._columns["microbatch"] = np.repeat(np.arange(times), count)
        priority = self.column("priority").reshape(times, count)
        priority += (np.arange(times) * priority_step)[:, None]
        order = np.argsort(later * count + earlier)  # as `build` wants them
        self._edges = [(np.add.outer(starts, later[order]).ravel(), np.add.outer(starts, earlier[order]).ravel())]
        tasks, devices, sizes = self.allocations()
        self._elsewhere = [(np.add.outer(starts, tasks).ravel(), _repeated(devices, times), _repeated(sizes, times))]
        self._count = count * times

    def allocations(self) -> tuple[Ints, Ints, Floats]:
        """All memory that tasks take elsewhere so far, see `allocate`: three arrays of one length."""
        none = np.zeros(0, dtype=np.int64)
        blocks = [(none, none, np.zeros(0)), *self._elsewhere]
        tasks, devices, sizes = zip(*blocks, strict=True)
        return np.concatenate(tasks), np.concatenate(devices), np.concatenate(sizes)

    def edges(self) -> tuple[Ints, Ints]:
        """All dependencies so far as two arrays of shape (edges,): tasks, and what each waits for."""
        none = np.zeros(0, dtype=np.int64)
        later = np.concatenate([none, *(edge[0] for edge in self._edges)])
        earlier = np.concatenate([none, *(edge[1] for edge in self._edges)])
        return later, earlier

    def build(self, static_bytes: Floats, layer_names: Sequence[str], launch_depth: int = 0) -> TaskGraph:
        """The finished graph."""
        later, earlier = self.edges()
        edges = np.sort(later * self._count + earlier, kind="stable")  # quick where most stand in order
        waits = np.bincount(later, minlength=self._count)
        start = np.zeros(self._count + 1, dtype=np.int64)
        np.cumsum(waits, out=start[1:])
        tasks, devices, sizes = self.allocations()
        return TaskGraph(
            allocation_task=tasks,
            allocation_device=devices,
            allocation_bytes=sizes,
            **{name: self.column(name) for name in _DEFAULTS},
            dependency_start=start,
            dependencies=edges - np.repeat(np.arange(self._count) * self._count, waits),
            routes=tuple(self._routes),
            static_bytes=static_bytes,
            layer_names=tuple(layer_names),
            launch_depth=launch_depth,
        )


def spread(values: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """As np.broadcast_to, in a tenth of its time."""
    return values if values.shape == shape else np.full(shape, values)


def _repeated(column: npt.NDArray[Any], times: int) -> npt.NDArray[Any]:
    """A column so many times, one after the other."""
    rows: npt.NDArray[Any] = np.empty((times, len(column)), dtype=column.dtype)
    rows[...] = column
    return rows.ravel()
