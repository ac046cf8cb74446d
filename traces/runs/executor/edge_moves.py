"""What of a layer's output, or of its gradient, each transfer carries: the elements behind the simulator's byte counts.

    piece      elements with the same terms and the same targets, a product of intervals along the four axes
    sum        what one group of targets needs of a piece: the terms of its holders, and those that are at home
    move       a message or collective of the graph, which carries slices of such sums in row-major order

The rules are those of `simulator.lowering.exchange.reshard`; numbers of tasks mean shards, as in `exchange_pieces`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulator.lowering.exchange.collective_patterns import Pattern
from simulator.lowering.exchange.exchange_pieces import Cell, EdgeEnd, Piece, pieces_of
from simulator.lowering.exchange.exchanges import moves_of, numbered
from simulator.lowering.exchange.reshard import SumGroup, slices

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
