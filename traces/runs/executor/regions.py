"""Boxes of a layer's output, and elements of a tensor that holds some of it.

Tensors are canonical, (samples, channels, height, width), and every one has an origin: the coordinates of its first
element in the output of its layer for one micro-batch.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from simulator.lowering.exchange.exchange_pieces import Cell
from simulator.lowering.exchange.shard_regions import Interval

Coordinates = tuple[int, int, int, int]
"""(sample, channel, row, column) in the output of a layer for one micro-batch."""


class Box(NamedTuple):
    """Half-open intervals of a layer's output, along each axis."""

    samples: Interval
    channels: Interval
    rows: Interval
    columns: Interval

    @property
    def low(self) -> Coordinates:
        """Where it begins."""
        return self.samples[0], self.channels[0], self.rows[0], self.columns[0]

    @property
    def shape(self) -> Coordinates:
        """(samples, channels, height, width)."""
        a, b, c, d = (high - low for low, high in self)
        return a, b, c, d

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def within(self, other: Box) -> bool:
        """Whether the other holds all of this."""
        return all(a <= low and high <= b for (low, high), (a, b) in zip(self, other, strict=True))

    def of(self, tensor: Tensor, origin: Coordinates) -> Tensor:
        """This box of a tensor (samples, channels, height, width) that begins at `origin`; a view."""
        if self.low == origin and self.shape == tensor.shape:
            return tensor
        spans = zip(self, origin, strict=True)
        return tensor[tuple(slice(low - start, high - start) for (low, high), start in spans)]


def take(tensor: Tensor, origin: Coordinates, cell: Cell) -> Tensor:
    """The elements of `cell` of a tensor (samples, channels, height, width) that begins at `origin`: (elements,)."""
    return tensor[_index(cell, origin)].reshape(-1)  # (samples, channels, height, width) -> (elements,)


def put(tensor: Tensor, origin: Coordinates, cell: Cell, row: Tensor) -> None:
    """Overwrite these elements by a row (elements,)."""
    shape = [sum(high - low for low, high in intervals) for intervals in cell]
    tensor[_index(cell, origin)] = row.view(shape)  # (elements,) -> (samples, channels, height, width)


@lru_cache(maxsize=65536)
def _index(cell: Cell, origin: Coordinates) -> tuple[slice | Tensor, ...]:
    """Slices where the cell is a box; else one index along each axis that spans it with the others."""
    spans = [[(low - start, high - start) for low, high in part] for part, start in zip(cell, origin, strict=True)]
    if all(len(part) == 1 for part in spans):
        return tuple(slice(*part[0]) for part in spans)
    numbers = [torch.cat([torch.arange(low, high) for low, high in part]) for part in spans]
    return tuple(
        numbers[axis].view([-1 if axis == other else 1 for other in range(4)])  # (n, 1, 1, 1), (1, n, 1, 1), ...
        for axis in range(4)
    )
