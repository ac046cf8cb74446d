"""What each layer computes and sends in a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.distinct import runs
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph

_PASSES = (Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT, Kind.RECOMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerUse:
    """Compute seconds of a layer over all devices, and the bytes that it sends and synchronises."""

    name: str
    compute_s: float
    forward_bytes: float
    backward_bytes: float
    synchronisation_bytes: float


def layers_use(model: ShardedModel, graph: TaskGraph) -> tuple[LayerUse, ...]:
    """Of every layer; a bucket's bytes are shared out to its layers by their parameter bytes."""
    count = len(model.profile.layers)
    volume = graph.counted_bytes * np.append(graph.pair_counts, 0)[graph.route]

    def by_layer(kind: Kind, values: Floats) -> Floats:
        owned = (graph.kind == kind) & (graph.layer >= 0)
        return np.bincount(graph.layer[owned], weights=values[owned], minlength=count).astype(np.float64)

    compute = np.sum([_compute_s(graph, kind, count, model.rank_classes) for kind in _PASSES], axis=0)
    forward, backward = by_layer(Kind.ACTIVATION, volume), by_layer(Kind.GRADIENT, volume)
    synchronisation = np.zeros(count)
    tasks = np.flatnonzero(graph.kind == Kind.SYNCHRONISATION)
    tasks = tasks[np.argsort(graph.shard[tasks], kind="stable")]
    of_bucket = np.split(tasks, np.searchsorted(graph.shard[tasks], np.arange(1, len(model.buckets))))
    for bucket, sums in zip(model.buckets, of_bucket, strict=False):
        alike = len(bucket.alike) or 1  # of so many ranks, whose bytes are added one after the other
        size = volume[sums].sum() / alike
        for piece in bucket.pieces:
            for _ in range(alike):
                synchronisation[piece.layer] += size * piece.parameter_bytes / bucket.size_bytes
    columns = zip(model.profile.layers, compute, forward, backward, synchronisation, strict=True)
    return tuple(
        LayerUse(
            name=layer.name,
            compute_s=float(c),
            forward_bytes=float(f),
            backward_bytes=float(b),
            synchronisation_bytes=float(s),
        )
        for layer, c, f, b, s in columns
    )


def _compute_s(graph: TaskGraph, kind: Kind, layers: int, classes: Ints) -> Floats:
    """Seconds of one kind of pass by layer, added up task by task as if those of all devices were there.

    In a micro-batch the shards of a layer stand replica after replica; of equal ranks there is one. classes: by replica
    and rank, which replica stands for it.
    """
    owned = np.flatnonzero((graph.kind == kind) & (graph.layer >= 0))
    if len(classes) > 1 and len(owned):
        first = np.flatnonzero(np.append(True, np.diff(graph.layer[owned]) | np.diff(graph.microbatch[owned])))
        of_one = np.diff(np.append(first, len(owned))) // (classes.max() + 1)  # tasks of each replica
        of_all = of_one * len(classes)
        at = runs(0, of_all)
        begin, of_one = np.repeat(first, of_all), np.repeat(of_one, of_all)
        owned = owned[begin + classes[at // of_one] * of_one + at % of_one]
    return np.bincount(graph.layer[owned], weights=graph.seconds[owned], minlength=layers).astype(np.float64)
