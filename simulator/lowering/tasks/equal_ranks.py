"""Ranks of tensor parallelism that do the same at the same times: of one micro-batch the tasks of the first are kept.

    rank 0    F  all-gather  F  message      kept: F, all-gather, F and, for those of all ranks, one message
    rank 1    F              F  message

Tasks are sorted into classes: those that stand equally far along on the devices of a group, and transfers of a layer
that carry as much between the same groups, each time that they do. Members of a class begin and end together where all
have the same columns and wait for the same classes, by induction along the dependencies, as links are shared alike
(`equal_links`). That is asserted of the tasks themselves, whatever plan they come from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from simulator.distinct import distinct
from simulator.lowering.symmetry.symmetry import AsymmetryError
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.taskgraph import Ints, Route

_OF_COMPUTE = ("kind", "layer", "seconds", "priority", "allocated_bytes", "freed_bytes")
_OF_TRANSFERS = ("kind", "layer", "seconds", "priority", "allocated_bytes", "freed_bytes", "bytes")


def keep_first_ranks(builder: GraphBuilder, passes: Passes, ranks: Ints) -> Passes:
    """Leave in `builder`, which holds one micro-batch, the tasks of the first ranks, with the passes among them.

    ranks: the devices of every group, shape (ranks, groups), see Symmetry.ranks. A transfer becomes one over the links
    of all ranks. Raises AsymmetryError where the ranks differ in anything.
    """
    first = np.full(int(ranks.max()) + 1, -1)  # by device, the first of its group
    first[ranks] = ranks[0]
    stands = _classes(builder, first, ranks)
    later, earlier = _dependencies(builder, stands)
    tasks, devices, sizes = builder.allocations()
    order = np.lexsort((sizes, stands[tasks]))  # which of equal ones stands first may differ
    like = _counterparts(devices[order], first, ranks)
    of, size = stands[tasks][order], sizes[order]
    _require((of == of[like]).all() and (size == size[like]).all())
    own = np.flatnonzero(first[devices] == devices)
    kept = stands == np.arange(len(stands))
    builder.keep(kept, _routes(builder, stands), (later, earlier), (stands[tasks[own]], devices[own], sizes[own]))
    number = np.cumsum(kept) - 1
    forward = kept[: passes.total]
    again = passes.recompute[forward]
    return Passes(
        first=np.append(0, np.cumsum(forward))[passes.first],
        device=passes.device[forward],
        last=number[passes.last[forward]],
        recompute=np.where(again < 0, again, number[again]),
        segment=passes.segment,
        total=int(forward.sum()),
        readers=passes.readers,
    )


def _require(alike: bool | np.bool_) -> None:
    if not alike:
        raise AsymmetryError("ranks differ")


def _counterparts(devices: Ints, first: Ints, ranks: Ints) -> Ints:
    """By entry, the one that stands as far along among those of the first device of its group; devices: of entries."""
    counts = np.bincount(devices, minlength=len(first))
    _require((counts[ranks] == counts[ranks[0]]).all())
    end, order = np.cumsum(counts), np.argsort(devices, kind="stable")
    own, like = devices[order], np.empty_like(order)
    like[order] = order[np.arange(len(order)) - end[own] + end[first[own]]]
    return like


def _classes(builder: GraphBuilder, first: Ints, ranks: Ints) -> Ints:
    """By task, the first of its class, which touches the first devices of its groups."""
    device, route = builder.column("device"), builder.column("route")
    stands = np.arange(len(builder))
    compute, transfers = np.flatnonzero(route < 0), np.flatnonzero(route >= 0)
    stands[compute] = compute[_counterparts(device[compute], first, ranks)]
    for name in _OF_COMPUTE:
        column = builder.column(name)
        _require((column[compute] == column[stands[compute]]).all())
    if not len(transfers):
        return stands
    shapes: dict[object, int] = {}  # which groups a route joins
    shape = np.array(
        [
            shapes.setdefault((tuple((first[a], first[b]) for a, b in route.pairs), route.rounds), len(shapes))
            for route in builder.routes
        ]
    )
    columns: list[npt.NDArray[np.float64]] = [builder.column(name)[transfers].astype(float) for name in _OF_TRANSFERS]
    receiver = np.append(first, -1)[device[transfers]]
    rows = np.stack([shape[route[transfers]].astype(float), receiver.astype(float), *columns])
    which = np.unique(rows, axis=1, return_inverse=True)[1].ravel()
    times = _times_before(which * len(shape) + route[transfers])
    _, lowest, which = np.unique(which + len(which) * times, return_index=True, return_inverse=True)
    stands[transfers] = transfers[lowest[which.ravel()]]
    own = device[transfers[lowest]]
    _require((own == np.append(first, -1)[own]).all())
    _require_each_device_once(builder, stands, first, ranks)
    return stands


def _times_before(values: Ints) -> Ints:
    """How many equal ones stand before each of some values."""
    order = np.argsort(values, kind="stable")
    begin = np.flatnonzero(np.append(True, np.diff(values[order]) > 0))
    times = np.empty(len(values), dtype=np.int64)
    times[order] = np.arange(len(values)) - np.repeat(begin, np.diff(np.append(begin, len(values))))
    return times


def _require_each_device_once(builder: GraphBuilder, stands: Ints, first: Ints, ranks: Ints) -> None:
    """Of a class of transfers each device of the groups that it joins takes part in one, first ones in the first."""
    transfers = np.flatnonzero(builder.column("route") >= 0)
    touched = [route.devices for route in builder.routes]
    lengths = np.array([len(devices) for devices in touched])[builder.column("route")[transfers]]
    ends = np.array([device for number in builder.column("route")[transfers] for device in touched[number]])
    task = np.repeat(transfers, lengths)
    pairs, groups = (distinct(stands[task] * len(first) + of) for of in (ends, first[ends]))
    _require(len(pairs) == len(ends) == len(groups) * len(ranks))
    _require(((stands[task] == task) & (first[ends] == ends)).sum() == len(groups))


def _dependencies(builder: GraphBuilder, stands: Ints) -> tuple[Ints, Ints]:
    """What the first of each class waits for: the first of the classes that every other of its class waits for."""
    count, (later, earlier) = len(stands), builder.edges()
    later, waits = np.divmod(distinct(later * count + stands[earlier]), count)
    classes, times = np.unique(stands[later] * count + waits, return_counts=True)
    _require((times == np.bincount(stands, minlength=count)[classes // count]).all())
    kept = stands[later] == later
    return later[kept], waits[kept]


def _routes(builder: GraphBuilder, stands: Ints) -> list[Route]:
    """The routes of the first transfers of all classes, in their order, each with those of its class."""
    routes, route = builder.routes, builder.column("route")
    transfers = np.flatnonzero(route >= 0)
    order = transfers[np.argsort(stands[transfers], kind="stable")]
    begin = np.flatnonzero(np.append(True, np.diff(stands[order]) > 0)[: len(order)])
    joined: dict[tuple[int, ...], Route] = {}
    of_classes = []
    for members in np.split(route[order], begin)[1:]:
        key = tuple(members.tolist())
        if key not in joined:
            pairs = tuple(pair for number in key for pair in routes[number].pairs)
            joined[key] = replace(routes[key[0]], pairs=pairs, copies=len(key))
        of_classes.append(joined[key])
    return of_classes
