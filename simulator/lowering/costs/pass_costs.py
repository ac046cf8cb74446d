"""What the forward and backward passes of a layer's shards take and hold in one micro-batch.

intervals: by (sample, channel, height, width) those whose product are the shards, see `shard_regions.shards`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from math import prod

import numpy as np

from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.costs.typical_scaling import Bound
from simulator.lowering.exchange.shard_regions import Interval
from simulator.plan import Sharding
from simulator.taskgraph import Floats, Ints
from simulator.workload import Layer, Profile

Intervals = Sequence[Sequence[Interval]]


@lru_cache(maxsize=1024)
def _lengths(intervals: tuple[Interval, ...]) -> Ints:
    """Of each interval, shape (parts,)."""
    return np.array([last - first for first, last in intervals])


@lru_cache(maxsize=1024)
def _sizes(*axes: tuple[Interval, ...]) -> tuple[list[int], Ints]:
    """The different sizes of parts along some axes together, and which of them each part has, shape (parts,)."""
    lengths = reduce(np.multiply.outer, map(_lengths, axes)).ravel()  # the last axis goes round first
    sizes, which = np.unique(lengths, return_inverse=True)
    return sizes.tolist(), which.ravel()


def shard_elements(layer: Layer, intervals: Intervals, sharding: Sharding) -> Floats:
    """Output elements of each shard, shape (shards,)."""
    boxes = reduce(np.multiply.outer, (_lengths(tuple(axis)) for axis in intervals), np.ones((), dtype=np.float64))
    if layer.routing:
        boxes = boxes * np.array(layer.routing.loads_of(sharding.degrees[3]))
    # (sample, channel, height, width) -> (shards,): each term and each copy has the elements of its box
    return np.repeat(boxes.ravel(), sharding.reduce * sharding.copy)


def pass_seconds(profile: Profile, layer: Layer, intervals: Intervals, sharding: Sharding, bound: Bound) -> Floats:
    """(forward, backward) seconds of each shard at speed 1, shape (2, shards); bound: as shard_seconds has it."""
    sample, channel, height, width = map(tuple, intervals)
    along = (height,) if layer.routing else (height, width)  # experts have the samples of all that share them
    samples, channels, areas = _sizes(sample), _sizes(channel), _sizes(*along)
    plane, inputs = prod(layer.output_shape[1 : len(along) + 1]), 1 / sharding.reduce
    table = np.array(
        [
            [
                [shard_seconds(profile, layer, n, c / layer.channels, a / plane, bound, inputs) for a in areas[0]]
                for c in channels[0]
            ]
            for n in samples[0]
        ]
    )  # (sample sizes, channel sizes, area sizes, 2)
    seconds = table[samples[1][:, None, None], channels[1][:, None], areas[1]]  # (samples, channels, areas, 2)
    if layer.routing:  # groups of experts, along the width, take as long as they have tokens
        shares = _lengths(width) / layer.output_shape[2] * layer.routing.loads_of(sharding.degrees[3])
        seconds = seconds[..., None, :] * shares[:, None]
    boxes = seconds.reshape(-1, 2).T  # (2, boxes): of one all terms and copies take as long as each other
    return np.repeat(boxes, sharding.reduce * sharding.copy, axis=1)


def pass_bytes(profile: Profile, positions: Sequence[int], elements: Floats, reduce: int) -> Floats:
    """(saved, output, working, kept) bytes of the shards of layers that are cut alike, shape (4, shards of all).

    elements: of each shard's output, (layers, shards); kept: what of that is saved. What a layer that sums over its
    input channels saves and works in is its input and the gradient of that, of which each of `reduce` terms has a part.
    """
    layers = [profile.layers[position] for position in positions]
    each = np.array([profile.element_bytes(position) for position in positions])  # (layers,)
    output, saved, working, kept = np.array(
        [(x.output_bytes, x.saved_bytes, x.working_bytes, x.saved_output_bytes) for x in layers], dtype=np.float64
    ).T
    of_element = [each * saved / (output * reduce), each, each * working / (output * reduce), each * kept / output]
    sizes: Floats = np.array(of_element)[:, :, None] * elements
    return sizes.reshape(4, -1)
