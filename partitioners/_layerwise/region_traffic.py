"""What an edge of the network sends between all pairs of devices, for every configuration of both of its ends.

Regions are boxes: intervals along sample, channel, height and width. Those of edges that are cut alike differ by a
unit alone, and are looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from partitioners._network.wiring import Traffic, Wiring, joined
from simulator.lowering.exchange.shard_regions import Interval
from simulator.taskgraph import Floats, Ints

_ENTRIES = 2**18
"""Messages between pairs of devices looked at together: what is larger takes three times as long, most of it for pages
that are new to the process."""
Axes = list[list[Interval]]
"""Four lists of intervals, whose product are the shards of a layer or what they read of another."""


class RegionTraffic:
    """Traffic over `wiring` between `workers` devices of which the first hold a layer's shards, in order.

    It is kept by regions in units, and by size.
    """

    def __init__(self, wiring: Wiring, workers: int) -> None:
        self._wiring, self._workers = wiring, workers
        self._known: dict[tuple[bytes, bytes, float], tuple[Traffic, Floats]] = {}
        self._scaled: dict[tuple[bytes, bytes, float], tuple[Traffic, Floats]] = {}

    def between(self, held: Sequence[Axes], needed: Sequence[Axes], element_bytes: float) -> tuple[Traffic, Floats]:
        """What is sent, and the bytes of the device that gets most of it, shape (configurations of the layer, of its
        reader): held and needed by configuration."""
        own, read, unit = _in_units(_boxes(held, self._workers), _boxes(needed, self._workers))
        size_bytes = element_bytes * unit
        regions = own.tobytes(), read.tobytes()
        if (*regions, size_bytes) not in self._scaled:
            counted = size_bytes if self._wiring.measured else 1.0
            key = *regions, counted
            if key not in self._known:
                blocks = [crossing_elements(some, read) for some in _blocks(own, len(read))]
                blocks = blocks if counted == 1 else [block * counted for block in blocks]
                received = np.concatenate([block.sum(axis=2).max(axis=2) for block in blocks])
                self._known[key] = joined([self._wiring.traffic(block) for block in blocks]), received
            sent, received = self._known[key]
            times = size_bytes / counted
            scaled = (sent, received) if times == 1 else (sent.times(times), received * times)
            self._scaled[*regions, size_bytes] = scaled
        return self._scaled[*regions, size_bytes]


def _in_units(own: Ints, needed: Ints) -> tuple[Ints, Ints, int]:
    """Regions along every axis in multiples of what divides all of their ends, and how many elements such a unit has:
    layers that are cut alike have the same ones, whatever their sizes."""
    units = np.maximum(np.gcd.reduce(np.concatenate([own, needed]), axis=(0, 1, 3)), 1)
    return own // units[:, None], needed // units[:, None], int(units.prod())


def _blocks(own: Ints, readers: int) -> list[Ints]:
    """`own` in parts, so that a part's sizes for all pairs of devices stay small."""
    entries = own.shape[0] * readers * own.shape[1] ** 2
    return np.array_split(own, min(len(own), -(-entries // _ENTRIES)))


def _boxes(axes: Sequence[Axes], devices: int) -> Ints:
    """Shape (configurations, devices, 4, 2): the region of each device's shard, empty where it has none."""
    boxes = np.zeros((len(axes), devices, 4, 2), dtype=np.int64)
    for box, intervals in zip(boxes, axes, strict=True):
        regions = list(product(*intervals))  # (shards, 4, 2)
        box[: len(regions)] = regions
    return boxes


def crossing_elements(own: Ints, needed: Ints) -> Floats:
    """Elements that device s holds and device t reads, shape (configurations, configurations, s, t), 0 for s = t.

    A device has one shard of a layer at most, so that what it reads of another is one box, the product of the
    overlaps along the four dimensions. An axis has few different intervals, so each pair is looked at once.
    """
    count: Floats = np.ones((1, 1, 1, 1))  # (own configurations, s, needed configurations, t)
    for axis in range(4):
        held, which = _distinct(own[:, :, axis])  # (intervals held, 2), (own configurations, s)
        read, reader = _distinct(needed[:, :, axis])  # (intervals read, 2), (needed configurations, t)
        low = np.maximum(held[:, None, 0], read[None, :, 0])  # (intervals held, intervals read)
        high = np.minimum(held[:, None, 1], read[None, :, 1])
        overlaps = np.maximum(high - low, 0.0)
        times = overlaps if overlaps.size == 1 else np.take(overlaps[which], reader, axis=2)
        count = count * times if count.size == 1 else np.multiply(count, times, out=count)
    count = np.broadcast_to(count, (*own.shape[:2], *needed.shape[:2])).swapaxes(1, 2).copy()
    diagonal = np.arange(own.shape[1])
    count[:, :, diagonal, diagonal] = 0
    return count  # (own configurations, needed configurations, s, t)


def _distinct(intervals: Ints) -> tuple[Ints, Ints]:
    """The different intervals, shape (count, 2), and the number of each of `intervals`, of its shape less the last."""
    base = int(intervals.max()) + 1  # one number for both ends: sorting pairs takes several times as long
    keys, number = np.unique(intervals[..., 0] * base + intervals[..., 1], return_inverse=True)
    return np.stack(np.divmod(keys, base), axis=1), number.reshape(intervals.shape[:-1])
