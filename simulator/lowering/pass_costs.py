"""What the forward and backward passes of a layer's shards take and hold in one micro-batch.

intervals: by (sample, channel, height, width) those whose product are the shards, see `shard_regions.shards`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.lowering.costs import shard_seconds
from simulator.lowering.shard_regions import Interval
from simulator.lowering.typical_scaling import Bound
from simulator.plan import Sharding
from simulator.taskgraph import Floats
from simulator.workload import Layer, Profile


def shard_elements(intervals: Sequence[Sequence[Interval]], sharding: Sharding) -> Floats:
    """Output elements of each shard, shape (shards,)."""
    product = np.ones((), dtype=np.float64)
    for axis in intervals:
        product = np.multiply.outer(product, np.array([last - first for first, last in axis]))
    # (sample, channel, height, width) -> (shards,): each term and each copy has the elements of its box
    return np.repeat(product.ravel(), sharding.reduce * sharding.copy)


def pass_seconds(
    profile: Profile, layer: Layer, intervals: Sequence[Sequence[Interval]], sharding: Sharding, bound: Bound
) -> Floats:
    """(forward, backward) seconds of each shard at speed 1, shape (2, shards); bound: as shard_seconds has it."""
    sample, channel, height, width = (np.array([last - first for first, last in axis]) for axis in intervals)
    area = np.multiply.outer(height, width).ravel()  # (height parts x width parts,)
    plane = layer.output_shape[1] * layer.output_shape[2]
    inputs = 1 / sharding.reduce
    unique = [np.unique(values, return_inverse=True) for values in (sample, channel, area)]
    table = np.array(
        [
            [
                [shard_seconds(profile, layer, n, c / layer.channels, a / plane, bound, inputs) for a in unique[2][0]]
                for c in unique[1][0]
            ]
            for n in unique[0][0]
        ]
    )  # (sample sizes, channel sizes, area sizes, 2)
    seconds = table[np.ix_(*(inverse.ravel() for _, inverse in unique))]  # (samples, channels, areas, 2)
    # (2, shards): terms and copies of a box take as long as each other, groups of experts as long as their share
    terms = np.repeat(seconds.reshape(-1, 2).T[..., None], sharding.reduce, axis=2)  # (2, boxes, reduce)
    if layer.routing:
        terms = terms * np.array(layer.routing.shares(sharding.reduce)) * sharding.reduce
    return np.repeat(terms.reshape(2, -1), sharding.copy, axis=1)


def pass_bytes(profile: Profile, position: int, elements: Floats) -> Floats:
    """(saved, output) bytes of each shard of the layer at `position`, shape (2, shards); elements: of its output."""
    layer, each = profile.layers[position], profile.element_bytes(position)
    saved = each * layer.saved_bytes / layer.output_bytes if layer.output_bytes else 0.0
    return np.stack([elements * saved, elements * each])
