"""An edge of the network cut into pieces: elements that the same shards make and the same shards read.

Pieces are cut where any shard that makes or reads the tensor is cut. Forward, what makes them are terms and what reads
them targets; backward it is the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from simulator.expert_routing import Routing
from simulator.lowering.exchange.reshard import Target, Term
from simulator.lowering.exchange.shard_regions import Interval
from simulator.plan import Sharding


class EdgeEnd(NamedTuple):
    """A layer's shards at one end of an edge of the network.

    intervals: by (sample, channel, height, width), what each part makes or reads; the parts of a reader along channel
    are (channel, reduce). shape: degrees by (sample, channel, height, width, reduce, copy). devices: of every shard,
    in row-major order of `shape`. routing: of a layer of experts, which stand along its width.
    """

    intervals: tuple[tuple[Interval, ...], ...]
    shape: tuple[int, ...]
    devices: tuple[int, ...]
    routing: Routing | None = None

    @classmethod
    def of(cls, intervals: Sequence[Sequence[Interval]], sharding: Sharding, routing: Routing | None) -> EdgeEnd:
        return cls(tuple(map(tuple, intervals)), sharding.shape, sharding.devices, routing)


Cell = tuple[tuple[Interval, ...], ...]
"""By (sample, channel, height, width) the intervals whose product are some elements of a tensor."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements of one box with the same terms and targets; `cell` says which. visits: whether they are tokens that
    travel to experts."""

    elements: float
    box: int
    terms: tuple[Term, ...]
    targets: tuple[Target, ...]
    cell: Cell = ()
    visits: bool = False

    def parts(self, count: int) -> list[Piece]:
        """The piece in `count` parts along its longest axis, as equal as integers allow, some maybe empty."""
        extents = [sum(high - low for low, high in intervals) for intervals in self.cell]
        axis = extents.index(max(extents))
        cut = []
        for i in range(count):
            wanted = (extents[axis] * i // count, extents[axis] * (i + 1) // count)
            cell = (*self.cell[:axis], _between(self.cell[axis], *wanted), *self.cell[axis + 1 :])
            elements = self.elements * (wanted[1] - wanted[0]) / extents[axis]
            cut.append(replace(self, elements=type(self.elements)(elements), cell=cell))
        return cut


def pieces_of(own: EdgeEnd, readers: Sequence[EdgeEnd], backward: bool) -> Iterator[Piece]:
    """The pieces of a layer's output in one direction.

    Forward, terms are the layer's shards (task: flat number of the shard) and targets its readers' (the numbers of
    the first reader's shards come first, from 0). Backward it is the other way round. Tokens that travel to a group of
    experts are a piece of their own, and so are those that come from it, along the width.
    """
    makers, of_experts = _Side(own, own.shape[:4], layer="own", first=0, visits=()), tokens_made(own, readers)
    begins = np.cumsum([0, *(len(reader.devices) for reader in readers)]).tolist()
    reading = [
        _Side(reader, joined_shape(reader.shape), layer=number, first=begin, visits=visits_of(reader, own))
        for number, (reader, begin) in enumerate(zip(readers, begins, strict=False))
    ]
    cells = [cells_along(own, readers, axis) for axis in range(4)]
    for parts in product(*cells):
        elements = prod(size for _, size, _ in parts)
        box = makers.number(tuple(who[0] for who, _, _ in parts))
        cell = tuple(intervals for _, _, intervals in parts)
        shards = [
            [side.number(at) for at in product(*(who[1][number] for who, _, _ in parts))]
            for number, side in enumerate(reading)
        ]
        made = makers.terms(box)
        for times_read, of_readers, visits in _reads(reading, shards):
            terms, needing = (of_readers, made) if backward else (made, of_readers)
            targets = tuple(
                Target(device, copy, task)
                for term in needing
                for copy, (device, task) in enumerate(zip(term.devices, term.tasks, strict=True))
            )
            times = times_read * (of_experts[parts[3][0][0]] if of_experts else 1)
            yield Piece(elements if times == 1 else elements * times, box, tuple(terms), targets, cell, visits)


def tokens_made(own: EdgeEnd, readers: Sequence[EdgeEnd]) -> tuple[float, ...]:
    """For each part by width of what experts make, how many times the tokens of equal loads it has.

    Outside a token is read once from a device where it has been once.
    """
    if own.routing is None:
        return ()
    parts = own.shape[3]
    if all(reader.routing for reader in readers):
        return own.routing.loads_of(parts)
    fair = own.routing.fair_shares(parts)
    visits = zip(own.routing.visits(parts), fair, strict=True)
    return tuple(times / (own.routing.top_k * share) for times, share in visits)


def visits_of(reader: EdgeEnd, own: EdgeEnd) -> tuple[float, ...]:
    """For each part by width of experts that read what comes from outside, how often a token travels to it."""
    return reader.routing.visits(reader.shape[3]) if reader.routing and own.routing is None else ()


def _between(intervals: Sequence[Interval], first: int, last: int) -> tuple[Interval, ...]:
    """What intervals hold from their element `first` to their element `last`, counted through all of them."""
    held, begin = [], 0
    for low, high in intervals:
        a, b = max(first, begin) - begin + low, min(last, begin + high - low) - begin + low
        held += [(a, b)] if a < b else []
        begin += high - low
    return tuple(held)


def _reads(reading: Sequence[_Side], shards: Sequence[Sequence[int]]) -> list[tuple[float, list[Term], bool]]:
    """Who reads a cell together, and how often: all readers but the groups of experts, to which tokens travel apart;
    and whether it is one of these.

    shards: of each side, the numbers of its regions that hold the cell.
    """
    together: list[Term] = []
    visits: list[tuple[float, list[Term], bool]] = []
    for side, numbers in zip(reading, shards, strict=True):
        for number in numbers:
            if side.visits:
                visits.append((side.visits_of(number), side.terms(number), True))
            else:
                together += side.terms(number)
    return [(1.0, together, False), *visits] if together else visits


def joined_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Of a reader: what it reads differs along reduce as it does along channel."""
    return shape[0], shape[1] * shape[4], shape[2], shape[3]


class _Side:
    """The shards of one layer by box (of what it makes) or by region (of what it reads)."""

    def __init__(
        self, edge: EdgeEnd, parts: tuple[int, ...], layer: int | str, first: int, visits: tuple[float, ...]
    ) -> None:
        self.visits, self._layer, self._parts, shape = visits, layer, parts, edge.shape
        tasks = np.arange(first, first + len(edge.devices)).reshape(shape)
        devices = np.array(edge.devices).reshape(shape)
        order, made = (
            ((0, 1, 4, 2, 3, 5), (-1, 1, shape[5])) if layer != "own" else (range(6), (-1, shape[4], shape[5]))
        )
        # (boxes or regions, terms, copies)
        self._tasks, self._devices = (array.transpose(order).reshape(made).tolist() for array in (tasks, devices))

    def number(self, at: tuple[int, ...]) -> int:
        number = 0
        for position, parts in zip(at, self._parts, strict=True):
            number = number * parts + position
        return number

    def visits_of(self, number: int) -> float:
        """How often a token travels to the group of experts that reads region `number`."""
        return self.visits[number % self._parts[3]]

    def terms(self, number: int) -> list[Term]:
        return [
            Term(self._layer, tuple(devices), tuple(tasks))
            for devices, tasks in zip(self._devices[number], self._tasks[number], strict=True)
        ]


Who = tuple[int, tuple[tuple[int, ...], ...]]
"""The part that makes a cell, and of each reader the parts that read it."""
Along = tuple[tuple[Who, int, tuple[Interval, ...]], ...]
"""Along an axis, of each cell who makes and reads it, its extent and its intervals."""


def cells_along(own: EdgeEnd, readers: Sequence[EdgeEnd], axis: int) -> Along:
    """Along one axis, the extent and the intervals of what the same parts make and read."""
    return _cells_between(own.intervals[axis], tuple(reader.intervals[axis] for reader in readers))


@lru_cache(maxsize=1024)
def _cells_between(own: tuple[Interval, ...], needed: tuple[tuple[Interval, ...], ...]) -> Along:
    edges = sorted({edge for intervals in (own, *needed) for interval in intervals for edge in interval})
    cells: dict[Who, list[Interval]] = {}
    holding = zip(*(_holding(intervals, edges) for intervals in (own, *needed)), strict=True)
    for cell, (makers, *readers) in zip(pairwise(edges), holding, strict=True):
        if makers:
            cells.setdefault((makers[0], tuple(readers)), []).append(cell)
    return tuple((who, sum(b - a for a, b in intervals), tuple(intervals)) for who, intervals in cells.items())


def _holding(intervals: Sequence[Interval], edges: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """From each edge to the next, both ascending, the numbers of the intervals that reach over it."""
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for number, (low, high) in enumerate(intervals):
        if low < high:
            begins.setdefault(low, []).append(number)
            ends.setdefault(high, []).append(number)
    holding: set[int] = set()
    for edge in edges[:-1]:
        holding.difference_update(ends.get(edge, ()))
        holding.update(begins.get(edge, ()))
        yield tuple(sorted(holding))
