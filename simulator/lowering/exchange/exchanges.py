"""What of a layer's output, or of its gradient, moves between devices, as messages or as collectives.

Of every piece of a tensor `reshard` says who sends what to whom. Messages of one box of the layer's output from one
device to another travel as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulator.lowering.exchange.collective_patterns import Pattern, pattern_of
from simulator.lowering.exchange.exchange_pieces import EdgeEnd, Piece, pieces_of
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
    moves = [move for piece in pieces for move in _groups(piece, exchange == "scattered")]
    if exchange == "messages":
        yield "message", moves
        return
    yield "message", [(piece, group) for piece, group in moves if not group.holders]
    moves = [(piece, group) for piece, group in moves if group.holders]
    for component in _components([group for _, group in moves]):
        entries = [moves[number] for number in component]
        yield pattern_of([(piece.elements, group) for piece, group in entries]), entries


def _groups(piece: Piece, scattered: bool) -> list[tuple[Piece, SumGroup]]:
    """A piece with each of its groups; scattered, its parts with theirs, where it goes from copies to copies."""
    groups = groups_of(piece.terms, piece.targets)
    parts = scattered_groups(groups) if scattered and piece.cell else []
    if not parts:
        return [(piece, group) for group in groups]
    return [entry for entry in zip(piece.parts(len(parts)), parts, strict=True) if entry[0].elements]


def _exchange_of(pieces: Sequence[Piece], exchange: str) -> Exchange:
    """Every slice summed at its owner by messages, then given by messages; or by collectives where they fit."""
    drawn = _ExchangeInMaking()
    for pattern, moves in moves_of(pieces, exchange):
        if pattern != "message":
            drawn.add_collective(pattern, [(piece.elements, piece.box, group) for piece, group in moves])
            continue
        for piece, group in moves:
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

    def add_collective(self, pattern: Pattern, moves: Sequence[tuple[float, int, SumGroup]]) -> None:
        devices = tuple(sorted({d for _, _, group in moves for d in group.holders.keys() | group.targets.keys()}))
        number = self._transfer((pattern, devices), Transfer(pattern, devices, moves[0][1]))
        transfer = self._made[number]
        # what stays at home in an all-to-all is part of the tensor, but no move
        whole = len(devices) / (len(devices) - 1) if pattern == "all-to-all" else 1
        for elements, _, group in moves:
            self._keep(group)
            transfer.elements += elements * whole
            transfer.needs.update((task, None) for tasks in group.holders.values() for task in tasks)
            for device, tasks in group.targets.items():
                self._wait(device, tasks, [number], ())

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
    return _exchange_of(list(pieces_of(own, readers, backward)), exchange)
