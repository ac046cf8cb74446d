"""What of a layer's output, or of its gradient, each transfer carries: the elements behind the simulator's byte counts.

    piece      elements with the same terms and the same targets, a product of intervals along the four axes
    sum        what one group of targets needs of a piece: the terms of its holders, and those that are at home
    move       a message or collective of the graph, which carries slices of such sums in row-major order

The rules are those of `simulator.lowering.exchange.reshard`; numbers of tasks mean shards, as in `exchange_pieces`, but
in `task_moves`, which joins the graph's transfers to the moves of their edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import numpy as np

from simulator.lowering.exchange.collective_patterns import Pattern
from simulator.lowering.exchange.exchange_pieces import Cell, EdgeEnd, Piece, pieces_of
from simulator.lowering.exchange.exchanges import moves_of, numbered
from simulator.lowering.exchange.reshard import SumGroup, slices
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Kind, TaskGraph

Tasks = Mapping[int, Sequence[int]]
"""By device, numbers of tasks on it."""
GATHERED = -1
"""The owner of what a collective delivers to all that need it."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PieceSum:
    """What a group of targets needs of a piece: holders, targets and at_home as in SumGroup, by device.

    slices: (owner, first, last) of its elements: who adds up which.
    """

    cell: Cell
    elements: int
    holders: Tasks
    targets: Tasks
    at_home: Tasks
    slices: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements `first` to `last` of a sum."""

    sum: PieceSum
    first: int
    last: int


@dataclass(slots=True)
class EdgeMove:
    """One transfer, from the first to the second of `devices` or a collective among them.

    final: whether what a message carries is summed already. box: the producing shard's box, as in the graph.
    """

    pattern: Pattern
    devices: tuple[int, ...]
    box: int
    final: bool
    slices: list[Slice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EdgeMoves:
    """All that moves of one tensor in one direction, in the order of the graph's transfers, and all its sums."""

    moves: tuple[EdgeMove, ...]
    sums: tuple[PieceSum, ...]

    def wanted(self, device: int) -> dict[int, list[PieceSum]]:
        """By task on `device`, the sums that it needs."""
        by_task: dict[int, list[PieceSum]] = defaultdict(list)
        for needed in self.sums:
            for task in needed.targets.get(device, ()):
                by_task[task].append(needed)
        return by_task


def edge_moves(own: EdgeEnd, readers: Sequence[EdgeEnd], *, backward: bool, exchange: str, plain: bool) -> EdgeMoves:
    """The moves of an edge in one direction. plain: each shard's output just goes to its readers, as the lowering says.

    Gradients of a plain edge are added up where they are needed, so that one message goes from each device to another.
    """
    own, readers, devices = numbered(own, readers)
    moves: dict[tuple[object, ...], EdgeMove] = {}
    sums: list[PieceSum] = []
    for pattern, entries in moves_of(list(pieces_of(own, readers, backward)), exchange):
        gathered, at_target = pattern != "message", plain and backward
        whole = [_sum(piece, group, devices, gathered, at_target) for piece, group in entries]
        sums += whole
        if pattern == "message":
            for (piece, _), needed in zip(entries, whole, strict=True):
                _add_messages(moves, piece.box, needed)
        else:
            members = tuple(sorted({d for needed in whole for d in (*needed.holders, *needed.targets)}))
            carried = [Slice(needed, 0, needed.elements) for needed in whole]
            moves[pattern, members] = EdgeMove(pattern, members, entries[0][0].box, True, carried)
    return EdgeMoves(tuple(moves.values()), tuple(sums))


def _sum(piece: Piece, group: SumGroup, devices: Sequence[int], gathered: bool, at_target: bool) -> PieceSum:
    elements = int(piece.elements)
    owners = [GATHERED] if gathered else list(group.targets) if at_target else group.owners
    owners = owners if group.holders else []
    cut, first = [], 0
    for owner, size in slices(elements, owners):
        if size:
            cut.append((owner if gathered else devices[owner], first, first + int(size)))
        first += int(size)
    holders, targets, at_home = (
        {devices[device]: tasks for device, tasks in part.items()}
        for part in (group.holders, group.targets, group.at_home)
    )
    return PieceSum(
        cell=piece.cell, elements=elements, holders=holders, targets=targets, at_home=at_home, slices=tuple(cut)
    )


def _add_messages(moves: dict[tuple[object, ...], EdgeMove], box: int, needed: PieceSum) -> None:
    """Every slice to its owner, and from there to the other targets; those of a box and two devices together."""
    for owner, first, last in needed.slices:
        ways = [(device, owner, False) for device in needed.holders if device != owner]
        ways += [(owner, device, True) for device in needed.targets if device != owner]
        for source, target, final in ways:
            key = (final, source, target, box)
            move = moves.setdefault(key, EdgeMove("message", (source, target), box, final))
            move.slices.append(Slice(needed, first, last))


class Phase(Enum):
    """What a tensor is of a layer's output in one micro-batch: AGAIN is the output of a recomputed layer, once more."""

    FORWARD = "forward"
    AGAIN = "again"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class TaskMove:
    """What a transfer carries: a move of a layer's tensor. members: of a collective, in the order of their ring."""

    layer: int
    phase: Phase
    move: EdgeMove
    members: tuple[int, ...]


def edges_of(model: ShardedModel) -> dict[tuple[int, Phase], EdgeMoves]:
    """By layer and phase, what moves; only of layers that others read, and again of those recomputed with a reader."""
    edges: dict[tuple[int, Phase], EdgeMoves] = {}
    for position, readers in enumerate(model.profile.consumers):
        draw = partial(edge_moves, exchange=model.plan.exchange, plain=model.has_plain_edge[position])
        if readers:
            edges[position, Phase.FORWARD] = draw(*model.edge(position), backward=False)
            edges[position, Phase.BACKWARD] = draw(*model.edge(position), backward=True)
        again = model.recomputed_readers(position)
        if again:
            edges[position, Phase.AGAIN] = draw(*model.edge(position, again), backward=False)
    return edges


def task_moves(graph: TaskGraph, edges: Mapping[tuple[int, Phase], EdgeMoves]) -> dict[int, TaskMove]:
    """By task, what every activation and gradient of the graph carries."""
    waiting: dict[tuple[object, ...], list[tuple[int, Phase, EdgeMove]]] = defaultdict(list)
    for (layer, phase), edge in edges.items():  # FORWARD before AGAIN, as in the graph
        kind = Kind.GRADIENT if phase == Phase.BACKWARD else Kind.ACTIVATION
        for move in edge.moves:
            waiting[kind, layer, move.pattern == "message", move.box, move.devices].append((layer, phase, move))
    joined: dict[int, TaskMove] = {}
    used: dict[tuple[object, ...], int] = defaultdict(int)
    for task in np.flatnonzero(np.isin(graph.kind, (Kind.ACTIVATION, Kind.GRADIENT))).tolist():
        pairs = graph.routes[graph.route[task]].pairs
        message = len(pairs) == 1
        members = pairs[0] if message else tuple(dict.fromkeys(source for source, _ in pairs))
        devices = members if message else tuple(sorted(members))
        key = Kind(graph.kind[task]), int(graph.layer[task]), message, int(graph.shard[task]), devices
        number = used[key, int(graph.microbatch[task])]
        used[key, int(graph.microbatch[task])] += 1
        joined[task] = TaskMove(*waiting[key][number], members)
    return joined
