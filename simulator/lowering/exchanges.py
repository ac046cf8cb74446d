"""What of a layer's output, or of its gradient, moves between devices, as messages or as collectives.

Pieces are cut where any shard that makes or reads them is cut; `reshard` says of each who sends what to whom.
Messages of one box of the layer's output from one device to another travel as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, product
from typing import Literal, NamedTuple

import numpy as np

from simulator.lowering.reshard import SumGroup, Target, Term, groups_of, slices
from simulator.lowering.shard_regions import Interval
from simulator.taskgraph import Ints

Pattern = Literal["message", "all-gather", "reduce-scatter", "all-reduce", "all-to-all"]


class EdgeEnd(NamedTuple):
    """A layer's shards at one end of an edge of the network.

    intervals: by (sample, channel, height, width), what each part makes or reads; the parts of a reader along channel
    are (channel, reduce). shape: degrees by (sample, channel, height, width, reduce, copy). devices: of every shard,
    in row-major order of `shape`.
    """

    intervals: tuple[tuple[Interval, ...], ...]
    shape: tuple[int, ...]
    devices: tuple[int, ...]

    @classmethod
    def of(cls, intervals: Sequence[Sequence[Interval]], shape: tuple[int, ...], devices: tuple[int, ...]) -> EdgeEnd:
        return cls(tuple(map(tuple, intervals)), shape, devices)


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements of one box with the same terms and targets."""

    elements: int
    box: int
    terms: tuple[Term, ...]
    targets: tuple[Target, ...]


@dataclass(slots=True)
class Transfer:
    """One message, of `elements` from the first to the second of `devices`, or one collective among them.

    A collective's elements are those of the whole tensor that it gathers, scatters or sums. needs: the tasks whose
    results it carries. after: transfers, by number, that it forwards or adds up.
    """

    pattern: Pattern
    devices: tuple[int, ...]
    box: int
    elements: int = 0
    needs: dict[int, None] = field(default_factory=dict)
    after: dict[int, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exchange:
    """All that moves of one tensor in one direction. The arrays are lists of pairs, shape (pairs, 2).

    needs: (transfer, task whose result it carries). after: (transfer, transfer that it forwards or adds up). arrivals:
    (task, transfer that it waits for). local: (task, task on its own device that it waits for). received: (transfer,
    device, first task there that waits for it), shape (deliveries, 3).
    """

    transfers: tuple[Transfer, ...]
    needs: Ints
    after: Ints
    arrivals: Ints
    local: Ints
    received: Ints

    @property
    def elements(self) -> int:
        """How many elements cross between devices."""
        return sum(moved_elements(transfer) for transfer in self.transfers)


def moved_elements(transfer: Transfer) -> int:
    """Elements that cross between devices in one transfer, counted once where they are received."""
    n, whole = len(transfer.devices), transfer.elements
    if transfer.pattern == "message":
        return whole
    if transfer.pattern == "all-to-all":
        return whole * (n - 1) // n
    return whole * (n - 1) * (2 if transfer.pattern == "all-reduce" else 1)


def pieces_of(own: EdgeEnd, readers: Sequence[EdgeEnd], backward: bool) -> Iterator[Piece]:
    """The pieces of a layer's output in one direction.

    Forward, terms are the layer's shards (task: flat number of the shard) and targets its readers' (the numbers of
    the first reader's shards come first, from 0). Backward it is the other way round.
    """
    makers = _Side(own, own.shape[:4], layer="own", first=0)
    begins = np.cumsum([0, *(len(reader.devices) for reader in readers)]).tolist()
    reading = [
        _Side(reader, _joined_shape(reader.shape), layer=number, first=begin)
        for number, (reader, begin) in enumerate(zip(readers, begins, strict=False))
    ]
    cells = [_cells(own, readers, axis) for axis in range(4)]
    for parts in product(*(axis.items() for axis in cells)):
        elements = int(np.prod([size for _, size in parts]))
        box = makers.number(tuple(who[0] for who, _ in parts))
        shards = [
            [side.number(at) for at in product(*(who[1][number] for who, _ in parts))]
            for number, side in enumerate(reading)
        ]
        if not any(shards):
            continue
        made = makers.terms(box)
        read = [term for side, numbers in zip(reading, shards, strict=True) for n in numbers for term in side.terms(n)]
        terms, needing = (read, made) if backward else (made, read)
        targets = tuple(
            Target(device, copy, task)
            for term in needing
            for copy, (device, task) in enumerate(zip(term.devices, term.tasks, strict=True))
        )
        yield Piece(elements, box, tuple(terms), targets)


def _joined_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Of a reader: what it reads differs along reduce as it does along channel."""
    return shape[0], shape[1] * shape[4], shape[2], shape[3]


class _Side:
    """The shards of one layer by box (of what it makes) or by region (of what it reads)."""

    def __init__(self, edge: EdgeEnd, parts: tuple[int, ...], layer: int | str, first: int) -> None:
        self._layer, self._parts = layer, parts
        shape = edge.shape
        tasks = np.arange(first, first + len(edge.devices)).reshape(shape)
        devices = np.array(edge.devices).reshape(shape)
        order, made = (
            ((0, 1, 4, 2, 3, 5), (-1, 1, shape[5])) if layer != "own" else (range(6), (-1, shape[4], shape[5]))
        )
        # (boxes or regions, terms, copies)
        self._tasks, self._devices = (array.transpose(order).reshape(made).tolist() for array in (tasks, devices))

    def number(self, at: tuple[int, ...]) -> int:
        return int(np.ravel_multi_index(at, self._parts))

    def terms(self, number: int) -> list[Term]:
        return [
            Term(self._layer, tuple(devices), tuple(tasks))
            for devices, tasks in zip(self._devices[number], self._tasks[number], strict=True)
        ]


_Who = tuple[int, tuple[tuple[int, ...], ...]]
"""The part that makes a cell, and of each reader the parts that read it."""


def _cells(own: EdgeEnd, readers: Sequence[EdgeEnd], axis: int) -> dict[_Who, int]:
    """Along one axis, the extent of what the same parts make and read."""
    return dict(_cells_between(own.intervals[axis], tuple(reader.intervals[axis] for reader in readers)))


@lru_cache(maxsize=1024)
def _cells_between(own: tuple[Interval, ...], needed: tuple[tuple[Interval, ...], ...]) -> tuple[tuple[_Who, int], ...]:
    edges = sorted({edge for intervals in (own, *needed) for interval in intervals for edge in interval})
    cells: dict[_Who, int] = {}
    for low, high in pairwise(edges):
        maker = next((i for i, (first, last) in enumerate(own) if first <= low and high <= last), None)
        if maker is None:
            continue
        readers = tuple(
            tuple(i for i, (first, last) in enumerate(intervals) if first <= low and high <= last)
            for intervals in needed
        )
        cells[maker, readers] = cells.get((maker, readers), 0) + high - low
    return tuple(cells.items())


def messages(pieces: Sequence[Piece]) -> Exchange:
    """Every slice summed at its owner by messages, then given by messages."""
    drawn = _ExchangeInMaking()
    for piece in pieces:
        for group in groups_of(piece.terms, piece.targets):
            drawn.add_messages(piece.elements, piece.box, group)
    return drawn.exchange()


def collectives(pieces: Sequence[Piece]) -> Exchange:
    """Groups of devices that exchange in a regular pattern do so in one collective, the others by messages."""
    drawn = _ExchangeInMaking()
    moves = [(piece, group) for piece in pieces for group in groups_of(piece.terms, piece.targets)]
    for piece, group in moves:
        if not group.holders:
            drawn.add_messages(piece.elements, piece.box, group)
    moves = [(piece, group) for piece, group in moves if group.holders]
    for component in _components([group for _, group in moves]):
        entries = [moves[number] for number in component]
        pattern = pattern_of([(piece.elements, group) for piece, group in entries])
        if pattern != "message":
            drawn.add_collective(pattern, [(piece.elements, piece.box, group) for piece, group in entries])
            continue
        for piece, group in entries:
            drawn.add_messages(piece.elements, piece.box, group)
    return drawn.exchange()


def _components(groups: Sequence[SumGroup]) -> list[list[int]]:
    """Numbers of the groups that are joined by devices in common."""
    root: dict[int, int] = {}

    def find(device: int) -> int:
        while root.setdefault(device, device) != device:
            device = root[device]
        return device

    members = [sorted(group.holders.keys() | group.targets.keys()) for group in groups]
    for devices in members:
        for device in devices[1:]:
            root[find(device)] = find(devices[0])
    joined: dict[int, list[int]] = {}
    for number, devices in enumerate(members):
        joined.setdefault(find(devices[0]), []).append(number)
    return list(joined.values())


def pattern_of(moves: Sequence[tuple[int, SumGroup]]) -> Pattern:
    """The collective that these (elements, group), joined by devices in common, are together."""
    members = {device for _, group in moves for device in group.holders.keys() | group.targets.keys()}
    if len(members) == 1:
        return "message"
    held = _share([(elements, _holding(group)) for elements, group in moves], members)
    needed = _share([(elements, group.targets.keys()) for elements, group in moves], members)
    if held == "all" and needed == "all":
        return "all-reduce" if all(len(group.holders) == len(members) for _, group in moves) else "message"
    if held == "all" and needed == "each":
        return "reduce-scatter"
    if held == "each" and needed == "all":
        return "all-gather"
    if held == "each" and needed == "each" and _every_pair_alike(moves, members):
        return "all-to-all"
    return "message"


def _holding(group: SumGroup) -> Set[int]:
    """The devices with a term of the piece, whether or not it moves."""
    return group.holders.keys() | {device for device, tasks in group.at_home.items() if tasks}


def _share(moves: Sequence[tuple[int, Set[int]]], members: set[int]) -> Literal["all", "each", "other"]:
    """Whether the devices of each of these (elements, devices) are all members, or each alone has an equal part."""
    if all(devices == members for _, devices in moves):
        return "all"
    if any(len(devices) != 1 for _, devices in moves):
        return "other"
    shares = dict.fromkeys(members, 0)
    for elements, devices in moves:
        shares[next(iter(devices))] += elements
    return "each" if max(shares.values()) - min(shares.values()) <= sum(shares.values()) // 10**6 + 1 else "other"


def _every_pair_alike(moves: Sequence[tuple[int, SumGroup]], members: set[int]) -> bool:
    pairs: dict[tuple[int, int], int] = {}
    for elements, group in moves:
        pair = next(iter(group.holders)), next(iter(group.targets))
        pairs[pair] = pairs.get(pair, 0) + elements
    return len(pairs) == len(members) ** 2 and max(pairs.values()) - min(pairs.values()) <= 1


class _ExchangeInMaking:
    """An Exchange in the making."""

    def __init__(self) -> None:
        self._transfers: dict[tuple[object, ...], int] = {}
        self._made: list[Transfer] = []
        self._arrivals: dict[tuple[int, int], None] = {}
        self._local: dict[tuple[int, int], None] = {}
        self._received: dict[tuple[int, int], int] = {}

    def exchange(self) -> Exchange:
        needs = [(number, task) for number, transfer in enumerate(self._made) for task in transfer.needs]
        after = [(number, other) for number, transfer in enumerate(self._made) for other in transfer.after]
        received = [(*key, task) for key, task in self._received.items()]
        return Exchange(
            transfers=tuple(self._made),
            needs=_rows(needs, 2),
            after=_rows(after, 2),
            arrivals=_rows(list(self._arrivals), 2),
            local=_rows(list(self._local), 2),
            received=_rows(received, 3),
        )

    def add_messages(self, elements: int, box: int, group: SumGroup) -> None:
        self._keep(group)
        owners = group.owners if group.holders else []
        for owner, part in slices(elements, owners):
            if not part:
                continue
            summed = [
                self._message("sum", device, owner, box, part, tasks, ())
                for device, tasks in group.holders.items()
                if device != owner
            ]
            own = group.holders.get(owner, [])
            for device, waiting in group.targets.items():
                if device == owner:
                    self._wait(device, waiting, summed, own)
                else:
                    given_on = self._message("give", owner, device, box, part, own, summed)
                    self._wait(device, waiting, [given_on], ())

    def add_collective(self, pattern: Pattern, moves: Sequence[tuple[int, int, SumGroup]]) -> None:
        devices = tuple(sorted({d for _, _, group in moves for d in group.holders.keys() | group.targets.keys()}))
        number = self._transfer((pattern, devices), Transfer(pattern, devices, moves[0][1]))
        transfer = self._made[number]
        for elements, _, group in moves:
            self._keep(group)
            transfer.elements += elements
            transfer.needs.update((task, None) for tasks in group.holders.values() for task in tasks)
            for device, tasks in group.targets.items():
                self._wait(device, tasks, [number], ())

    def _message(
        self,
        phase: str,
        source: int,
        target: int,
        box: int,
        elements: int,
        needs: Sequence[int],
        after: Sequence[int],
    ) -> int:
        number = self._transfer((phase, source, target, box), Transfer("message", (source, target), box))
        transfer = self._made[number]
        transfer.elements += elements
        transfer.needs.update((task, None) for task in needs)
        transfer.after.update((other, None) for other in after)
        return number

    def _transfer(self, key: tuple[object, ...], transfer: Transfer) -> int:
        number = self._transfers.setdefault(key, len(self._made))
        if number == len(self._made):
            self._made.append(transfer)
        return number

    def _keep(self, group: SumGroup) -> None:
        for device, tasks in group.targets.items():
            self._wait(device, tasks, (), group.at_home[device])

    def _wait(self, device: int, tasks: Sequence[int], transfers: Sequence[int], local: Sequence[int]) -> None:
        for number in transfers:
            self._received[number, device] = min(*tasks, self._received.get((number, device), tasks[0]))
        self._arrivals.update(((task, number), None) for task in tasks for number in transfers)
        self._local.update(((task, other), None) for task in tasks for other in local)


def _rows(rows: Sequence[tuple[int, ...]], columns: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, columns)


@dataclass(frozen=True, slots=True)
class Exchanges:
    """The two directions of an edge; transfers name devices by their position in `devices`."""

    forward: Exchange
    backward: Exchange
    devices: Ints


def exchanges_of(own: EdgeEnd, readers: Sequence[EdgeEnd], as_collectives: bool) -> Exchanges:
    """What moves of a layer's output to its readers, and of the gradient back."""
    order = dict.fromkeys(device for edge in (own, *readers) for device in edge.devices)
    number = {device: i for i, device in enumerate(order)}

    def renamed(edge: EdgeEnd) -> EdgeEnd:
        return edge._replace(devices=tuple(number[device] for device in edge.devices))

    ends = renamed(own), tuple(map(renamed, readers))
    forward, backward = (_exchange(*ends, direction, as_collectives) for direction in (False, True))
    return Exchanges(forward, backward, np.array(list(order), dtype=np.int64))


@lru_cache(maxsize=4096)
def _exchange(own: EdgeEnd, readers: tuple[EdgeEnd, ...], backward: bool, as_collectives: bool) -> Exchange:
    """Of one direction; devices are numbered as they first appear, so that layers cut alike share the answer."""
    draw: Callable[[Sequence[Piece]], Exchange] = collectives if as_collectives else messages
    return draw(list(pieces_of(own, readers, backward)))
