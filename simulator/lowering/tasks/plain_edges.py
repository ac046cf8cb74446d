"""Edges of the network without sums, copies or collectives: a shard's output just goes to the shards that read it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.lowering.exchange.crossings import Crossings, Reads
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Ints


def plain_edges(model: ShardedModel, positions: Sequence[int]) -> PlainEdges:
    """Reads and crossings of layers that `has_plain_edge`; a run of them that are cut alike is kept as a whole."""
    runs = (tuple(run) for _, run in groupby(positions, key=model.cuts.__getitem__))
    return PlainEdges.joined([_run_of_edges(model, run) for run in runs])


def _run_of_edges(model: ShardedModel, positions: tuple[int, ...]) -> PlainEdges:
    readers = [model.profile.consumers[position] for position in positions]
    end = max((max(of_layer) for of_layer in readers if of_layer), default=0) + 1
    cuts = model.cuts[positions[0] : max(end, positions[-1] + 1)]
    shards = sum(len(model.devices[position]) for position in positions)

    def edges() -> PlainEdges:
        return PlainEdges.of(positions, readers, [_edge(model, position) for position in positions])

    key = "edges", positions[0], positions[-1], model.plan.microbatch_size, cuts
    return model.profile.kept.get(key, edges, shards)


def _edge(model: ShardedModel, position: int) -> PlainEdge:
    readers = model.profile.consumers[position]
    ends = position, *readers

    def edge() -> PlainEdge:
        reads, element_bytes = model.reads(position), model.profile.element_bytes(position)
        return PlainEdge.of(readers, reads, model.crossings(position, reads), element_bytes)

    alike, cuts = model.profile.read_alike[position], tuple(model.cuts[end] for end in ends)
    shards = sum(len(model.devices[end]) for end in ends)
    return model.profile.kept.get(("edge", alike, model.plan.microbatch_size, cuts), edge, shards)


class PlainEdge(NamedTuple):
    """Who reads a layer's output, one entry per (producing shard, reading shard), and what of it crosses.

    reader: number among the layer's readers. entry: see Crossings, whose shard is `sender` here.
    """

    producer: Ints
    reader: Ints
    shard: Ints
    entry: Ints
    sender: Ints
    device: Ints
    size_bytes: npt.NDArray[np.floating[Any]]

    @classmethod
    def of(cls, readers: Sequence[int], reads: Reads, crossings: Crossings, element_bytes: float) -> PlainEdge:
        number = np.searchsorted(readers, reads.consumer)  # readers stand in ascending order
        size_bytes = crossings.elements * element_bytes
        return cls(reads.producer, number, reads.shard, crossings.entry, crossings.shard, crossings.device, size_bytes)


class PlainEdges(NamedTuple):
    """The same of several layers in a row, with the positions of the layers.

    source, target: of the producing and of the reading shard. entry: numbered through all layers. layer: of the sender.
    counts: crossings of each layer, shape (layers,).
    """

    source: Ints
    producer: Ints
    target: Ints
    shard: Ints
    entry: Ints
    layer: Ints
    sender: Ints
    device: Ints
    size_bytes: npt.NDArray[np.floating[Any]]
    counts: Ints

    @classmethod
    def of(cls, positions: Sequence[int], readers: Sequence[Sequence[int]], edges: Sequence[PlainEdge]) -> PlainEdges:
        """readers: of each layer, by position."""
        columns = [np.concatenate(column) for column in zip(*edges, strict=True)]
        producer, reader, shard, entry, sender, device, size_bytes = columns
        reads, counts = ([len(edge[column]) for edge in edges] for column in (0, -1))
        before = np.cumsum([0, *(len(of_layer) for of_layer in readers)])[:-1]
        everybody = np.array([position for of_layer in readers for position in of_layer], dtype=np.int64)
        return cls(
            source=np.repeat(positions, reads),
            producer=producer,
            target=everybody[np.repeat(before, reads) + reader],
            shard=shard,
            entry=_numbered_on(entry, np.array(counts), np.array(reads)),
            layer=np.repeat(positions, counts),
            sender=sender,
            device=device,
            size_bytes=size_bytes,
            counts=np.array(counts),
        )

    @classmethod
    def joined(cls, runs: Sequence[PlainEdges]) -> PlainEdges:
        """Those of several runs of layers."""
        if len(runs) == 1:
            return runs[0]
        edges = cls(*(np.concatenate(column) for column in zip(*runs, strict=True)))
        sizes = np.array([(len(run.size_bytes), len(run.entry)) for run in runs])
        return edges._replace(entry=_numbered_on(edges.entry, *sizes.T))


def _numbered_on(entry: Ints, counts: Ints, reads: Ints) -> Ints:
    """Crossings of several groups numbered through all of them; counts, reads: how many each group has."""
    before = np.repeat(np.cumsum(counts) - counts, reads)
    return np.where(entry < 0, -1, entry + before)
