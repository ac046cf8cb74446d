"""One tensor of a micro-batch as a device holds it: terms that its shards made, what others sent, and their sums.

Tensors are canonical, (samples, channels, height, width), and each has an origin: the coordinates of its first element
in the output of its layer. What is sent are rows (elements,), slice after slice of sums over pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simulator.lowering.exchange.exchange_pieces import Cell
from traces.runs.executor.edge_moves import EdgeMove, PieceSum, Slice
from traces.runs.executor.parameter_boxes import Box, Coordinates, is_inside, put, take
from traces.runs.executor.transport import Swap, all_gather, all_reduce, all_to_all, reduce_scatter


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor (samples, channels, height, width) that begins at `low`."""

    tensor: Tensor
    low: Coordinates

    @property
    def box(self) -> Box:
        """What it covers."""
        return Box(*((start, start + size) for start, size in zip(self.low, self.tensor.shape, strict=True)))


class TensorFlow:
    """The tensor on `device`; terms: by number of the task that made them, missing where they are zero."""

    def __init__(self, device: int, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self.terms: dict[int, HeldTensor] = {}
        self._partial: dict[tuple[PieceSum, int], list[tuple[int, Tensor]]] = {}
        self._summed: dict[tuple[PieceSum, int], Tensor] = {}

    def row(self, move: EdgeMove) -> Tensor:
        """What a message of this device carries, (elements,)."""
        parts = [self._slice(part) for part in move.slices]
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)  # (elements,)

    def empty_row(self, move: EdgeMove) -> Tensor:
        """Room for what a message carries, (elements,)."""
        return torch.empty(sum(part.last - part.first for part in move.slices), dtype=self._dtype)

    def deliver(self, move: EdgeMove, row: Tensor) -> None:
        """Keep what has come: the row of a message, or all sums of a collective, (elements,) one after the other."""
        source, begin = move.devices[0], 0
        for part in move.slices:
            if move.pattern != "message" and self._device not in part.sum.targets:
                continue
            end = begin + part.last - part.first
            if move.final:
                self._summed[part.sum, part.first] = row[begin:end]
            else:
                self._partial.setdefault((part.sum, part.first), []).append((source, row[begin:end]))
            begin = end

    def collective(self, move: EdgeMove, members: Sequence[int], swap: Swap) -> Tensor:
        """Take part in a collective among `members`, in their order; what it delivers here, (elements,)."""
        index, sums = members.index(self._device), [part.sum for part in move.slices]
        if move.pattern == "all-reduce":
            return all_reduce(self._joined(sums), index, len(members), swap)
        held = [[needed for needed in sums if member in needed.holders] for member in members]
        wanted = [[needed for needed in sums if member in needed.targets] for member in members]
        if move.pattern == "reduce-scatter":
            return reduce_scatter([self._joined(block) for block in wanted], index, swap)
        if move.pattern == "all-gather":
            blocks = all_gather(self._joined(held[index]), [_elements(block) for block in held], index, swap)
        else:
            held = [[needed for needed in block if needed in wanted[index]] for block in held]
            sent = [self._joined([needed for needed in block if self._device in needed.holders]) for block in wanted]
            blocks = all_to_all(sent, [_elements(block) for block in held], index, swap)
        order = [needed for block in held for needed in block]
        rows = dict(zip(order, torch.split(torch.cat(blocks), [needed.elements for needed in order]), strict=True))
        return torch.cat([rows[needed] for needed in wanted[index]])  # (elements,)

    def read(self, wanted: Sequence[PieceSum], box: Box) -> Tensor:
        """What all `wanted` sums over pieces of `box` are: (samples, channels, height, width), zeros elsewhere.

        May be a view of a term.
        """
        whole = self._of_whole_terms(wanted, box)
        if whole is not None:
            return whole
        total = torch.zeros(box.shape, dtype=self._dtype)  # (samples, channels, height, width)
        for needed in wanted:
            row = self._sum(needed)
            if row is not None:
                put(total, box.low, needed.cell, row)
        return total

    def _of_whole_terms(self, wanted: Sequence[PieceSum], box: Box) -> Tensor | None:
        """The fast way where nothing has moved: a part of one term, or terms of exactly this box added up."""
        tasks = {self._tasks_here(needed) for needed in wanted}
        if len(tasks) != 1 or None in tasks:
            return None
        terms = [self.terms[task] for task in next(iter(tasks)) or () if task in self.terms]
        if len(terms) == 1 and is_inside(box, terms[0].box):
            return box.of(terms[0].tensor, terms[0].low)
        if terms and all(term.box == box for term in terms):
            first, *rest = (term.tensor for term in terms)
            return first + sum(rest)
        return None

    def _tasks_here(self, needed: PieceSum) -> tuple[int, ...] | None:
        """The tasks whose terms are the whole sum, where all are on this device."""
        if needed.holders.keys() - {self._device}:
            return None
        return (*needed.holders.get(self._device, ()), *needed.at_home.get(self._device, ()))

    def _sum(self, needed: PieceSum) -> Tensor | None:
        """All that this device needs of a piece, (elements,); None for zeros."""
        parts = [self._slice(Slice(needed, first, last)) for _, first, last in needed.slices]
        moved = torch.cat(parts) if len(parts) > 1 else parts[0] if parts else None  # (elements,)
        terms = [self._term(task, needed.cell) for task in needed.at_home.get(self._device, ())]
        rows = [row for row in (moved, *terms) if row is not None]
        return rows[0] + sum(rows[1:]) if len(rows) > 1 else rows[0] if rows else None

    def _slice(self, part: Slice) -> Tensor:
        """A slice of a sum, (elements,): as received, or added up here out of what is held and what has come."""
        key = part.sum, part.first
        if key in self._summed:
            return self._summed[key]
        rows = [row for _, row in sorted(self._partial.get(key, ()), key=lambda entry: entry[0])]
        for task in part.sum.holders.get(self._device, ()):
            term = self._term(task, part.sum.cell)
            if term is not None:
                rows.insert(0, term[part.first : part.last])
        if not rows:
            return torch.zeros(part.last - part.first, dtype=self._dtype)
        return rows[0] + sum(rows[1:]) if len(rows) > 1 else rows[0]

    def _term(self, task: int, cell: Cell) -> Tensor | None:
        term = self.terms.get(task)
        return None if term is None else take(term.tensor, term.low, cell)

    def _joined(self, sums: Sequence[PieceSum]) -> Tensor:
        """What this device has of some sums, one after the other: (elements,)."""
        rows = [self._slice(Slice(needed, 0, needed.elements)) for needed in sums]
        return torch.cat(rows) if rows else torch.empty(0, dtype=self._dtype)  # (elements,)


def _elements(sums: Sequence[PieceSum]) -> int:
    return sum(needed.elements for needed in sums)
