"""What a shard's inputs are made of, and what of its output crosses to another device.

    producer's shards      a reader's input             a parcel: what one device reads of one shard
    +-----+-----+          +---------+                  +------+
    |  p0 |  p1 |          | p0 | p1 |                  |##    |   one box, or the marked elements of one
    |  +--|---+ |    ->    +---------+                  |  ### |
    +--+--+---+-+                                       +------+

Tensors are canonical, (samples, channels, height, width), and every one has an origin: the coordinates of its first
element in the output of its layer for one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simulator.lowering.crossings import Reads, crossings_of
from simulator.taskgraph import Ints

Coordinates = tuple[int, int, int, int]
"""(sample, channel, row, column) in the output of a layer for one micro-batch."""


@dataclass(frozen=True, slots=True)
class Region:
    """The half-open box from `low` to `high` of a layer's output."""

    low: Coordinates
    high: Coordinates

    @property
    def shape(self) -> Coordinates:
        """(samples, channels, height, width)."""
        return coordinates(b - a for a, b in zip(self.low, self.high, strict=True))

    def of(self, tensor: Tensor, origin: Coordinates) -> Tensor:
        """This region of a tensor (samples, channels, height, width) that begins at `origin`; a view."""
        if self.low == origin and self.shape == tensor.shape:
            return tensor
        spans = zip(self.low, self.high, origin, strict=True)
        return tensor[tuple(slice(low - start, high - start) for low, high, start in spans)]


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one device reads of one shard: a region, of which only the marked elements are sent if there is a mask."""

    region: Region
    mask: Tensor | None

    @property
    def elements(self) -> int:
        """How many numbers are sent."""
        return int(np.prod(self.region.shape)) if self.mask is None else int(self.mask.sum())

    def packed(self, tensor: Tensor, origin: Coordinates) -> Tensor:
        """The elements to send of a tensor that begins at `origin`, as a row (elements,)."""
        part = self.region.of(tensor, origin)
        return part.reshape(-1) if self.mask is None else part[self.mask]  # (elements,)

    def unpacked(self, row: Tensor) -> Tensor:
        """The region (samples, channels, height, width) with the elements received, 0 where none are sent."""
        if self.mask is None:
            return row.view(self.region.shape)  # (samples, channels, height, width)
        return row.new_zeros(self.region.shape).masked_scatter_(self.mask, row)  # the same


def assembled(region: Region, parts: Sequence[tuple[Region, Tensor, Coordinates]]) -> Tensor:
    """`region` out of (part of it, tensor that holds the part, that tensor's origin); a view where one has all."""
    if len(parts) == 1 and parts[0][0] == region:
        return region.of(*parts[0][1:])
    joined = parts[0][1].new_empty(region.shape)  # (samples, channels, height, width)
    for part, tensor, origin in parts:
        part.of(joined, region.low).copy_(part.of(tensor, origin))
    return joined


def added(region: Region, parts: Sequence[tuple[Region, Tensor]], like: Tensor) -> Tensor:
    """The sum over `region` of tensors for parts of it, in their order; zeros where there are none.

    May be one of the tensors itself. `like` gives the type of the zeros.
    """
    if parts and all(part == region for part, _ in parts):
        first, *rest = (tensor for _, tensor in parts)
        return first + sum(rest) if rest else first
    total = like.new_zeros(region.shape)  # (samples, channels, height, width)
    for part, tensor in parts:
        part.of(total, region.low).add_(tensor)
    return total


def parcels(reads: Reads, source: Ints, target: Ints, rank: int) -> Iterator[tuple[int, int, Parcel]]:
    """(producing shard, reading device, parcel) of one layer's crossings that begin or end at device `rank`.

    source, target: the devices of each read's producer and reader, both of shape (reads,).
    """
    crossing = crossings_of(reads, source, target)
    of_rank = (crossing.entry >= 0) & ((source == rank) | (target == rank))
    for number in np.unique(crossing.entry[of_rank]).tolist():
        entries = crossing.entry == number
        yield (
            int(crossing.shard[number]),
            int(crossing.device[number]),
            _parcel(reads.low[entries], reads.high[entries]),
        )


def _parcel(low: Ints, high: Ints) -> Parcel:
    region = Region(coordinates(low.min(axis=0)), coordinates(high.max(axis=0)))
    if ((low == region.low) & (high == region.high)).all(axis=1).any():
        return Parcel(region, None)
    mask = torch.zeros(region.shape, dtype=torch.bool)  # (samples, channels, height, width)
    for first, last in zip(low, high, strict=True):
        Region(coordinates(first), coordinates(last)).of(mask, region.low).fill_(True)
    return Parcel(region, None if bool(mask.all()) else mask)


def coordinates(numbers: Iterator[int] | Ints) -> Coordinates:
    """Four numbers, (4,), as Coordinates."""
    a, b, c, d = (int(x) for x in numbers)
    return a, b, c, d
