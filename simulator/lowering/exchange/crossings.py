"""Which shard reads which, and what therefore crosses between devices.

One description serves the lowering, a plan's communication volume and the hypergraph, so that the three agree
to the byte. A piece of a shard's output crosses to a device once, however many of that device's shards
read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from simulator.distinct import distinct, runs
from simulator.lowering.exchange.shard_regions import Interval, reads, shards
from simulator.plan import Sharding
from simulator.taskgraph import Ints
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Who reads the output of one layer, one entry per (producing shard, reading shard) pair.

    producer: shard of the layer. consumer: layer index of the reader; shard: its shard. low, high: the
    half-open region read, shape (entries, 4), in samples, channels, rows, columns of the output.
    """

    producer: Ints
    consumer: Ints
    shard: Ints
    low: Ints
    high: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossings:
    """What of one layer's output crosses between devices, one entry per (shard, device) pair.

    shard is the producing shard, device the reader, elements how many output elements cross. `entry` maps
    each of the `Reads` to its crossing, -1 where it stays on its device.
    """

    shard: Ints
    device: Ints
    elements: Ints
    entry: Ints


def reads_of(profile: Profile, placements: Mapping[str, Sharding], samples: int, position: int) -> Reads:
    """Every (producing shard, reading shard) pair of the layer at `position`, for `samples` samples."""
    producer = profile.layers[position]
    source = placements[producer.name].degrees
    own = shards(producer, samples, source, placements[producer.name].samples)
    parts: list[tuple[npt.NDArray[np.int64], ...]] = []
    for consumer in profile.consumers[position]:
        layer = profile.layers[consumer]
        target = placements[layer.name].degrees
        needed = reads(profile, layer, producer, shards(layer, samples, target, placements[layer.name].samples))
        axes = [_overlaps(tuple(a), tuple(b)) for a, b in zip(own, needed, strict=True)]
        counts = [len(axis) for axis in axes]
        if not all(counts):
            continue
        at = np.unravel_index(np.arange(prod(counts)), counts)  # of each pair its overlap along every axis
        rows = np.stack([axis[number] for axis, number in zip(axes, at, strict=True)])  # (axes, pairs, 4)
        producers = np.ravel_multi_index(tuple(rows[..., 0]), source)
        consumers = np.ravel_multi_index(tuple(rows[..., 1]), target)
        parts.append((producers, np.full(len(producers), consumer), consumers, rows[..., 2].T, rows[..., 3].T))
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Reads(producer=none, consumer=none, shard=none, low=none.reshape(0, 4), high=none.reshape(0, 4))
    merged = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Reads(producer=merged[0], consumer=merged[1], shard=merged[2], low=merged[3], high=merged[4])


@lru_cache(maxsize=256)
def _overlaps(own: tuple[Interval, ...], needed: tuple[Interval, ...]) -> Ints:
    """Rows (producer interval, consumer interval, low, high) of every non-empty overlap.

    Both stand in ascending order, lower and upper bounds alike, so that each overlaps a run of the others. Most layers
    are cut alike, so that few are ever computed.
    """
    a, b = np.array(own), np.array(needed)
    begin, end = np.searchsorted(b[:, 1], a[:, 0], side="right"), np.searchsorted(b[:, 0], a[:, 1], side="left")
    counts = end - begin
    i = np.repeat(np.arange(len(a)), counts)
    j = runs(begin, counts)
    rows = np.stack([i, j, np.maximum(a[i, 0], b[j, 0]), np.minimum(a[i, 1], b[j, 1])], axis=1)
    return rows[rows[:, 2] < rows[:, 3]]


def crossings_of(reads: Reads, source: Ints, target: Ints) -> Crossings:
    """What crosses, by the device of each read's producer and reader: `source` and `target`, shape (reads,)."""
    away = np.nonzero(source != target)[0]
    entry = np.full(len(source), -1, dtype=np.int64)
    if not len(away):
        none = np.zeros(0, dtype=np.int64)
        return Crossings(shard=none, device=none, elements=none, entry=entry)
    pairs, inverse = np.unique(np.stack([reads.producer[away], target[away]], axis=1), axis=0, return_inverse=True)
    entry[away] = inverse.ravel()
    elements = _union_sizes(entry[away], reads.low[away], reads.high[away], len(pairs))
    return Crossings(shard=pairs[:, 0], device=pairs[:, 1], elements=elements, entry=entry)


def _union_sizes(group: Ints, low: Ints, high: Ints, groups: int) -> Ints:
    """Elements in the union of the boxes of each group: shape (groups,), of low and high (boxes, 4)."""
    rows = np.unique(np.concatenate([group[:, None], low, high], axis=1), axis=0)  # (different boxes, 9)
    group, low, high = rows[:, 0], rows[:, 1:5], rows[:, 5:9]
    sizes = (high - low).prod(axis=1)  # (different boxes,)
    total = np.bincount(group, weights=sizes, minlength=groups).astype(np.int64)
    for g in np.nonzero(np.bincount(group, minlength=groups) > 1)[0]:
        members = group == g
        total[g] = _union(low[members], high[members])
    return total


def _union(low: Ints, high: Ints) -> int:
    """Elements in the union of the boxes low, high (boxes, 4)."""
    cells, sizes = cells_of(low, high)
    return int(sizes[distinct(np.concatenate(cells))].sum())


def cells_of(low: Ints, high: Ints) -> tuple[list[Ints], Ints]:
    """Of each of the boxes low, high (boxes, 4) its cells in the grid that the edges of all draw, by number, and the
    elements of each cell."""
    edges = [np.unique(np.concatenate([low[:, axis], high[:, axis]])) for axis in range(4)]
    sizes = np.ones((), dtype=np.int64)
    for of_axis in edges:
        sizes = np.multiply.outer(sizes, np.diff(of_axis))  # one axis more: (cells by sample, channel, row, column)
    numbers, cells = np.arange(sizes.size).reshape(sizes.shape), []
    for box in zip(low, high, strict=True):
        spans = (slice(*np.searchsorted(of_axis, ends)) for of_axis, *ends in zip(edges, *box, strict=True))
        cells.append(numbers[tuple(spans)].ravel())
    return cells, sizes.ravel()
