"""What of a layer's output, or of its gradient, moves between devices, as messages or as collectives.

Of every piece of a tensor `reshard` says who sends what to whom. Messages of one box of the layer's output from one
device to another travel as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulator.distinct import distinct
from simulator.lowering.exchange.collective_patterns import Pattern, pattern_of
from simulator.lowering.exchange.exchange_pieces import EdgeEnd, Piece, pieces_of
from simulator.lowering.exchange.moves import Moves
from simulator.lowering.exchange.reshard import SumGroup, groups_of, scattered_groups, slices
from simulator.taskgraph import Floats, Ints

WHOLE_FROM = 2**30
"""Elements of a transfer from which on it has whole ones, by less than a billionth; others have multiples of 2^-10.
Then sums are exact in whatever order, and equal replicas are simulated once (`symmetry.equal_links`)."""


@dataclass(slots=True)
class Transfer:
    """One message, of `elements` from the first to the second of `devices`, or one collective among them.

    A collective's elements are those of the whole tensor that it gathers, scatters or sums. needs: the tasks whose
    results it carries. after: transfers, by number, that it forwards or adds up.
    """

    pattern: Pattern
    devices: tuple[int, ...]
    box: int
    elements: float = 0
    needs: dict[int, None] = field(default_factory=dict)
    after: dict[int, None] = field(default_factory=dict)


class Messages(NamedTuple):
    """Messages as columns: ends, (source, target), shape (messages, 2); their elements and boxes, (messages,)."""

    ends: Ints
    elements: Floats
    boxes: Ints


@dataclass(frozen=True, slots=True)
class Exchange:
    """All that moves of one tensor in one direction. The arrays are lists of pairs, shape (pairs, 2).

    messages: the transfers, None where one is a collective. needs: (transfer, task whose result it carries). after:
    (transfer, transfer that it forwards or adds up). arrivals: (task, transfer that it waits for). local: (task, task
    on its own device that it waits for). received: (transfer, device, first task there that waits for it), shape
    (deliveries, 3).
    """

    transfers: tuple[Transfer, ...]
    messages: Messages | None
    needs: Ints
    after: Ints
    arrivals: Ints
    local: Ints
    received: Ints


def moves_of(pieces: Sequence[Piece], exchange: str) -> Iterator[tuple[Pattern, Sequence[tuple[Piece, SumGroup]]]]:
    """What moves together, in the order of the transfers: messages, or the groups of one collective.

    exchange: as in EXCHANGES; but for messages, devices that exchange in a regular pattern do so in one collective.
    """
    entries = _entries(pieces, exchange)
    for pattern, moves in _together(Moves.of(entries), exchange):
        yield pattern, [entries[number] for number in moves.numbers.tolist()]


def _together(moves: Moves, exchange: str) -> Iterator[tuple[Pattern, Moves]]:
    """The same of moves in columns."""
    if exchange == "messages":
        yield "message", moves
        return
    for number, part in enumerate(moves.parts(_components(moves))):
        yield "message" if number == 0 else pattern_of(part), part


def _entries(pieces: Iterable[Piece], exchange: str) -> list[tuple[Piece, SumGroup]]:
    """Pieces with each of their groups; scattered, their parts with theirs, where they go from copies to copies."""
    entries: list[tuple[Piece, SumGroup]] = []
    for piece in pieces:
        groups = groups_of(piece.terms, piece.targets)
        parts = scattered_groups(groups) if exchange == "scattered" and piece.cell else []
        cut = zip(piece.parts(len(parts)), parts, strict=True) if parts else ((piece, group) for group in groups)
        entries += [(part, group) for part, group in cut if not parts or part.elements]
    return entries


def _exchange_of(moves: Moves, exchange: str) -> Exchange:
    """Every slice summed at its owner by messages, then given by messages; or by collectives where they fit."""
    drawn = _ExchangeInMaking()
    for pattern, part in _together(moves, exchange):
        if pattern != "message":
            drawn.add_collective(pattern, part)
            continue
        for elements, box, group in part.groups():
            drawn.add_messages(elements, box, group)
    return drawn.exchange()


def _components(moves: Moves) -> Ints:
    """Of each group, 0 where nothing moves; the others are numbered from 1 by what devices in common join, in order."""
    ends = np.concatenate([moves.holders, moves.targets])[:, :2]
    moving = np.zeros(len(moves.elements), dtype=np.bool_)
    moving[moves.holders[:, 0]] = True
    group, device = ends[moving[ends[:, 0]]].T
    device = 2 * device + moves.visits[group]  # tokens travel to experts in a collective of their own
    lowest = np.arange(len(moves.elements))  # group that each is joined to
    while True:
        of_device = np.full(device.max(initial=-1) + 1, len(lowest))
        np.minimum.at(of_device, device, lowest[group])
        joined = lowest.copy()
        np.minimum.at(joined, group, of_device[device])
        if (joined == lowest).all():
            break
        lowest = joined
    label = np.zeros(len(lowest), dtype=np.int64)
    label[moving] = 1 + np.searchsorted(distinct(lowest[moving]), lowest[moving])
    return label


class _ExchangeInMaking:
    """An Exchange in the making."""

    def __init__(self) -> None:
        self._transfers: dict[tuple[object, ...], int] = {}
        self._made: list[Transfer] = []
        self._arrivals: dict[tuple[int, int], None] = {}
        self._local: dict[tuple[int, int], None] = {}
        self._received: dict[tuple[int, int], int] = {}

    def exchange(self) -> Exchange:
        for transfer in self._made:
            transfer.elements = _exact(transfer.elements)
        needs = [(number, task) for number, transfer in enumerate(self._made) for task in transfer.needs]
        after = [(number, other) for number, transfer in enumerate(self._made) for other in transfer.after]
        received = [(*key, task) for key, task in self._received.items()]
        return Exchange(
            transfers=tuple(self._made),
            messages=_columns(self._made) if all(each.pattern == "message" for each in self._made) else None,
            needs=_rows(needs, 2),
            after=_rows(after, 2),
            arrivals=_rows(list(self._arrivals), 2),
            local=_rows(list(self._local), 2),
            received=_rows(received, 3),
        )

    def add_messages(self, elements: float, box: int, group: SumGroup) -> None:
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

    def add_collective(self, pattern: Pattern, moves: Moves) -> None:
        devices, numbers = tuple(moves.members.tolist()), moves.numbers
        number = self._transfer((pattern, devices), Transfer(pattern, devices, int(moves.boxes[numbers[0]])))
        transfer = self._made[number]
        # what stays at home in an all-to-all is part of the tensor, but no move
        whole = len(devices) / (len(devices) - 1) if pattern == "all-to-all" else 1
        transfer.elements = float(np.cumsum(moves.elements[numbers] * whole)[-1])  # one after the other
        transfer.needs = dict.fromkeys(moves.holders[:, 2].tolist())
        self._local.update(dict.fromkeys(map(tuple, moves.local.tolist())))
        for device, task in dict.fromkeys(zip(*moves.targets[:, 1:].T.tolist(), strict=True)):
            self._wait(device, [task], [number], ())

    def _message(
        self,
        phase: str,
        source: int,
        target: int,
        box: int,
        elements: float,
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


def _exact(elements: float) -> float:
    """What of a tensor moves is whole but for the tokens that experts are expected to take."""
    return float(round(elements)) if elements >= WHOLE_FROM else round(elements * 2**10) / 2**10


def _columns(messages: Sequence[Transfer]) -> Messages:
    return Messages(
        ends=_rows([each.devices for each in messages], 2),
        elements=np.array([each.elements for each in messages], dtype=np.float64),
        boxes=np.array([each.box for each in messages], dtype=np.int64),
    )


def _rows(rows: Sequence[tuple[int, ...]], columns: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, columns)


@dataclass(frozen=True, slots=True)
class Exchanges:
    """The two directions of an edge; transfers name devices by their position in `devices`."""

    forward: Exchange
    backward: Exchange
    devices: Ints


def exchanges_of(own: EdgeEnd, readers: Sequence[EdgeEnd], exchange: str) -> Exchanges:
    """What moves of a layer's output to its readers, and of the gradient back."""
    own, readers, devices = numbered(own, readers)
    forward, backward = (_exchange(own, readers, direction, exchange) for direction in (False, True))
    return Exchanges(forward, backward, np.array(devices, dtype=np.int64))


def numbered(own: EdgeEnd, readers: Sequence[EdgeEnd]) -> tuple[EdgeEnd, tuple[EdgeEnd, ...], list[int]]:
    """The ends of an edge with devices numbered as they first appear, and the device of each number.

    Slices are shared out in the order of these numbers, so that layers cut alike exchange alike.
    """
    order = dict.fromkeys(device for edge in (own, *readers) for device in edge.devices)
    number = {device: i for i, device in enumerate(order)}
    ends = [edge._replace(devices=tuple(number[device] for device in edge.devices)) for edge in (own, *readers)]
    return ends[0], tuple(ends[1:]), list(order)


@lru_cache(maxsize=4096)
def _exchange(own: EdgeEnd, readers: tuple[EdgeEnd, ...], backward: bool, exchange: str) -> Exchange:
    """Of one direction, of ends that are numbered alike; layers cut alike share the answer."""
    if all(end.shape[5] == 1 for end in (own, *readers)):
        return _exchange_of(Moves.between(own, readers, backward), exchange)
    return _exchange_of(Moves.of(_entries(pieces_of(own, readers, backward), exchange)), exchange)
