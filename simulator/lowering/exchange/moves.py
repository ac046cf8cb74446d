"""What of a tensor moves, in columns: the groups of targets of `reshard`, of all pieces of an edge.

Between n devices with tokens and n with experts there are n^2 pieces. Without copies every piece is one group, so that
they are cut and grouped without a look at each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.distinct import distinct, places
from simulator.lowering.exchange.exchange_pieces import (
    EdgeEnd,
    Piece,
    cells_along,
    joined_shape,
    tokens_made,
    visits_of,
)
from simulator.lowering.exchange.reshard import SumGroup
from simulator.taskgraph import Floats, Ints

Booleans = npt.NDArray[np.bool_]


class Moves(NamedTuple):
    """Groups of targets, numbered along the pieces that they need.

    elements, counted, boxes, visits, owners: of each group, shape (groups,): the elements of its piece, whether they
    are a count rather than an expected number, its box, whether its tokens travel to experts, and SumGroup.owner, below
    0 for None. holders, targets, at_home: as
    in SumGroup, rows (group, device, task), shape (rows, 3), in the order of the groups, or of some of them.
    """

    elements: Floats
    counted: Booleans
    boxes: Ints
    visits: Booleans
    owners: Ints
    holders: Ints
    targets: Ints
    at_home: Ints

    @classmethod
    def of(cls, entries: Sequence[tuple[Piece, SumGroup]]) -> Moves:
        """Of pieces with their groups."""
        tables = [
            [
                (number, device, task)
                for number, (_, group) in enumerate(entries)
                for device, tasks in getattr(group, name).items()
                for task in tasks
            ]
            for name in ("holders", "targets", "at_home")
        ]
        holders, targets, at_home = (np.array(table, dtype=np.int64).reshape(-1, 3) for table in tables)
        return cls(
            elements=np.array([piece.elements for piece, _ in entries], dtype=np.float64),
            counted=np.array([isinstance(piece.elements, int) for piece, _ in entries], dtype=np.bool_),
            boxes=np.array([piece.box for piece, _ in entries], dtype=np.int64),
            visits=np.array([piece.visits for piece, _ in entries], dtype=np.bool_),
            owners=np.array([-1 if group.owner is None else group.owner for _, group in entries], dtype=np.int64),
            holders=holders,
            targets=targets,
            at_home=at_home,
        )

    @classmethod
    def between(cls, own: EdgeEnd, readers: Sequence[EdgeEnd], backward: bool) -> Moves:
        """Of ends without copies: the groups of the pieces that `pieces_of` cuts, in the same order."""
        elements, counted, boxes, visits, reading = _cut(own, readers)
        made = np.arange(len(own.devices)).reshape(-1, own.shape[4])[boxes]  # (pieces, terms)
        terms = np.repeat(np.arange(len(boxes)), own.shape[4]), np.array(own.devices)[made].ravel(), made.ravel()
        holders, targets = map(_by_device, (reading, np.stack(terms, axis=1))[:: 1 if backward else -1])
        first = np.zeros(len(boxes), dtype=np.int64)  # a device that needs each piece
        first[targets[:, 0]] = targets[:, 1]
        alone = np.ones(len(boxes), dtype=np.bool_)  # whether it is the only one
        alone[targets[targets[:, 1] != first[targets[:, 0]], 0]] = False
        stays = alone[holders[:, 0]] & (holders[:, 1] == first[holders[:, 0]])
        nobody = np.full(len(boxes), -1)
        return cls(elements, counted, boxes, visits, nobody, holders[~stays], targets, holders[stays])

    @property
    def numbers(self) -> Ints:
        """Of the groups, ascending."""
        return distinct(self.targets[:, 0])

    @property
    def members(self) -> Ints:
        """The devices that hold or need a sum that moves, ascending."""
        return distinct(np.append(self.holders[:, 1], self.targets[:, 1]))

    @property
    def local(self) -> Ints:
        """(task, task on its own device that it waits for), shape (pairs, 2)."""
        width = int(max(self.targets[:, 1].max(initial=0), self.at_home[:, 1].max(initial=0))) + 1
        needing, home = (rows[:, 0] * width + rows[:, 1] for rows in (self.targets, self.at_home))
        order = np.argsort(home, kind="stable")
        counts, at = places(home[order], needing)
        return np.stack([np.repeat(self.targets[:, 2], counts), self.at_home[order[at], 2]], axis=1)

    def parts(self, label: Ints) -> Iterator[Moves]:
        """The groups with label 0, those with label 1 and so on; label: of each group, shape (groups,)."""
        tables = []
        for rows in (self.holders, self.targets, self.at_home):
            labels = label[rows[:, 0]]
            order = np.argsort(labels, kind="stable")
            tables.append(np.split(rows[order], np.cumsum(np.bincount(labels, minlength=label.max(initial=-1) + 1))))
        for holders, targets, at_home in list(zip(*tables, strict=True))[:-1]:  # behind the last is nothing
            yield self._replace(holders=holders, targets=targets, at_home=at_home)

    def groups(self) -> Iterator[tuple[float, int, SumGroup]]:
        """Of each group the elements and the box of its piece, and the group."""
        made: dict[int, SumGroup] = {}
        for number in self.numbers.tolist():
            owner = int(self.owners[number])
            made[number] = SumGroup({}, {}, {}, None if owner < 0 else owner)
        for number, device, task in self.targets.tolist():
            made[number].targets.setdefault(device, []).append(task)
            made[number].at_home.setdefault(device, [])
        for number, device, task in self.holders.tolist():
            made[number].holders.setdefault(device, []).append(task)
        for number, device, task in self.at_home.tolist():
            made[number].at_home[device].append(task)
        for number, group in made.items():
            elements = float(self.elements[number])
            yield int(elements) if self.counted[number] else elements, int(self.boxes[number]), group


def _cut(own: EdgeEnd, readers: Sequence[EdgeEnd]) -> tuple[Floats, Booleans, Ints, Booleans, Ints]:
    """Of every piece the columns of `Moves` up to its visits, and rows (piece, device, task) of its readers."""
    cells = [cells_along(own, readers, axis) for axis in range(4)]
    shape = [len(along) for along in cells]
    nobody: Ints = np.zeros(0, dtype=np.int64)
    tables, first = [(nobody, np.zeros(0), nobody, nobody)], 0
    for number, reader in enumerate(readers):
        pairs = [[(i, part) for i, (who, _, _) in enumerate(along) for part in who[1][number]] for along in cells]
        at = np.unravel_index(np.arange(prod(map(len, pairs))), [len(each) for each in pairs])
        along_axes = [np.array(each, dtype=np.int64).reshape(-1, 2)[i] for each, i in zip(pairs, at, strict=True)]
        cell, region = (
            np.ravel_multi_index([each[:, column] for each in along_axes], parts)
            for column, parts in enumerate((shape, joined_shape(reader.shape)))
        )
        tasks = np.arange(len(reader.devices)).reshape(reader.shape).transpose(0, 1, 4, 2, 3, 5).ravel()[region]
        times = np.array(visits_of(reader, own))
        apart = times[region % reader.shape[3]] if len(times) else np.full(len(region), -1.0)
        tables.append((cell, apart, np.array(reader.devices)[tasks], first + tasks))
        first += len(reader.devices)
    # tokens that travel to experts are pieces of their own, behind what the others read together
    tables.sort(key=lambda table: bool((table[1] >= 0).any()))
    cell, apart, devices, tasks = (np.concatenate(column) for column in zip(*tables, strict=True))
    order = np.argsort(cell, kind="stable")
    cell, apart = cell[order], apart[order]
    begins = np.append(True, np.diff(cell) > 0)[: len(cell)] | (apart >= 0)
    cell, apart, piece = cell[begins], apart[begins], np.cumsum(begins) - 1
    of_cells = np.unravel_index(cell, shape)
    makers = [np.array([who[0] for who, _, _ in along])[i] for along, i in zip(cells, of_cells, strict=True)]
    times = np.where(apart >= 0, apart, 1.0)
    if made := tokens_made(own, readers):
        times = times * np.array(made)[makers[3]]
    extents = [np.array([extent for _, extent, _ in along])[i] for along, i in zip(cells, of_cells, strict=True)]
    boxes: Ints = np.ravel_multi_index(makers, own.shape[:4])
    return (
        np.prod(extents, axis=0) * times,
        times == 1,
        boxes,
        apart >= 0,
        np.stack([piece, devices[order], tasks[order]], axis=1),
    )


def _by_device(rows: Ints) -> Ints:
    """Rows (group, device, task) with those of a group and device together, in the order in which these first stand."""
    keys = rows[:, 0] * (rows[:, 1].max(initial=0) + 1) + rows[:, 1]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[np.argsort(first[which.ravel()], kind="stable")]
