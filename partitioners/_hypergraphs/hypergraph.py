"""The hypergraph whose connectivity cut is a plan's communication volume.

Vertices are shards of layers, weighted by measured compute seconds. Nets are weighted by bytes: an activation
net joins a piece of a layer's output with every shard that reads it, at twice its bytes (the activation there,
its gradient back); a parameter net joins the shards that use the same slot of a layer's parameters, at
twice their bytes (the gradient in, the parameter out). Summed over nets, (parts that a net touches - 1) x weight
is the volume of one step under ring all-reduce. The model follows hypergraph-partitioned model
parallelism (Bilkent thesis, 2019) with shards in place of its neurons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.errors import InputError
from simulator.lowering.exchange.crossings import Reads, cells_of
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Degrees, Plan, Sharding
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypergraph:
    """vertex_weights in seconds; net_weights in bytes per step; net n joins pins[net_start[n] : net_start[n + 1]]."""

    vertex_weights: Floats
    net_weights: Floats
    net_start: Ints
    pins: Ints

    def imbalance(self, parts: Sequence[int] | Ints, shares: Sequence[float]) -> float:
        """Largest of (a part's weight / its share of the whole) - 1; shares add up to 1."""
        loads = np.bincount(np.asarray(parts, dtype=np.int64), weights=self.vertex_weights, minlength=len(shares))
        total = self.vertex_weights.sum()
        return float((loads / (np.array(shares) * total)).max() - 1) if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Shards of a profile's layers as vertices: layer i's shard s is vertex vertex[i][s].

    Layers of one chain share their vertices, so that shard s of each is on one device.
    """

    degrees: tuple[Degrees, ...]
    vertex: tuple[Ints, ...]
    batch_size: int
    microbatches: int

    @property
    def vertices(self) -> int:
        return 1 + max(int(numbers.max()) for numbers in self.vertex)

    def placements(self, profile: Profile, parts: Sequence[int] | Ints) -> dict[str, Sharding]:
        """Every layer's sharding when vertex v is on device parts[v]; parts has shape (vertices,)."""
        devices = np.asarray(parts, dtype=np.int64)
        return {
            layer.name: Sharding(degrees=degrees, devices=tuple(devices[vertex].tolist()))
            for layer, degrees, vertex in zip(profile.layers, self.degrees, self.vertex, strict=True)
        }


def grid_of(profile: Profile, samples: int, channels: int, *, batch_size: int, microbatches: int = 1) -> Grid:
    """A grid of `samples` x `channels` shards for every layer, fewer where a layer has fewer channels.

    A layer that reads one producer shard by shard is fused to it when nothing else reads the producer.
    Raises InputError when a micro-batch has fewer samples than slots.
    """
    if samples > batch_size // microbatches:
        raise InputError(
            f"grid: {samples} sample slots for micro-batches of {batch_size // microbatches} samples; "
            "use at most as many"
        )
    degrees: list[Degrees] = [(samples, min(channels, layer.channels), 1, 1) for layer in profile.layers]
    vertex: list[Ints] = []
    count = 0
    for position, layer in enumerate(profile.layers):
        head = _fused_to(profile, position, channels)
        if head is not None and degrees[head] == degrees[position]:
            vertex.append(vertex[head])
            continue
        size = samples * min(channels, layer.channels)
        vertex.append(np.arange(count, count + size))
        count += size
    return Grid(degrees=tuple(degrees), vertex=tuple(vertex), batch_size=batch_size, microbatches=microbatches)


def _fused_to(profile: Profile, position: int, channels: int) -> int | None:
    """The producer whose shards this layer's shards need one to one, if it is its only reader."""
    layer = profile.layers[position]
    if len(layer.inputs) != 1:
        return None
    head = profile.index[layer.inputs[0]]
    producer = profile.layers[head]
    if len(profile.consumers[head]) != 1 or layer.geometry.mixes_channels:
        return None
    if layer.kind == "flatten":
        area = producer.output_shape[1] * producer.output_shape[2]
        aligned = producer.channels % channels == 0 and layer.channels == producer.channels * area
        return head if aligned else None
    return head if layer.channels == producer.channels else None


def exact_grid(plan: Plan, profile: Profile) -> Grid:
    """The plan's own shards as vertices, nothing fused, in order of layers."""
    placements = [plan.placements[layer.name] for layer in profile.layers]
    edges = np.concatenate([[0], np.cumsum([len(sharding.devices) for sharding in placements])])
    return Grid(
        degrees=tuple(sharding.degrees for sharding in placements),
        vertex=tuple(np.arange(a, b) for a, b in pairwise(edges.tolist())),
        batch_size=plan.batch_size,
        microbatches=plan.microbatches,
    )


def build(profile: Profile, grid: Grid) -> Hypergraph:
    """The hypergraph of `profile` cut into the shards of `grid`: vertices weigh seconds, nets bytes."""
    plan = Plan(
        model=profile.model,
        batch_size=grid.batch_size,
        microbatches=grid.microbatches,
        placements=grid.placements(profile, np.arange(grid.vertices)),
    )
    model = ShardedModel(profile, plan)
    weights = np.zeros(grid.vertices)
    nets: dict[tuple[int, ...], float] = {}
    for position, vertex in enumerate(grid.vertex):
        np.add.at(weights, vertex, model.pass_seconds(position).sum(axis=0) * grid.microbatches)
        for pins, size in _activation_nets(model, grid, position):
            nets[pins] = nets.get(pins, 0.0) + 2 * size * grid.microbatches
    for piece in model.replicas:
        if len(piece.devices) > 1:
            nets[piece.devices] = nets.get(piece.devices, 0.0) + 2 * piece.parameter_bytes
    return joined_nets(weights, nets)


def _activation_nets(model: ShardedModel, grid: Grid, position: int) -> list[tuple[tuple[int, ...], float]]:
    """(pins, bytes) of the pieces of one layer's output; a piece is what the same set of shards reads."""
    reads = model.reads(position)
    if not len(reads.producer):
        return []
    readers = _reading_vertices(grid, reads)
    each = model.profile.element_bytes(position)
    order = np.argsort(reads.producer, kind="stable")
    splits = np.flatnonzero(np.diff(reads.producer[order])) + 1
    nets: list[tuple[tuple[int, ...], float]] = []
    for rows in np.split(order, splits):
        home = int(grid.vertex[position][reads.producer[rows[0]]])
        for pins, elements in _pieces(reads.low[rows], reads.high[rows], readers[rows]):
            joined = tuple(sorted({home, *pins}))
            if len(joined) > 1:
                nets.append((joined, elements * each))
    return nets


def _reading_vertices(grid: Grid, reads: Reads) -> Ints:
    vertices = np.empty(len(reads.shard), dtype=np.int64)
    for consumer in np.unique(reads.consumer):
        rows = reads.consumer == consumer
        vertices[rows] = grid.vertex[consumer][reads.shard[rows]]
    return vertices


def _pieces(low: Ints, high: Ints, readers: Ints) -> list[tuple[list[int], int]]:
    """The boxes' cells on the grid that their edges draw, joined where the same readers read them."""
    if (low == low[0]).all() and (high == high[0]).all():
        return [(np.unique(readers).tolist(), int((high[0] - low[0]).prod()))]
    cells, sizes = cells_of(low, high)
    reading: dict[int, list[int]] = {}
    for of_box, reader in zip(cells, readers.tolist(), strict=True):
        for cell in of_box.tolist():
            reading.setdefault(cell, []).append(reader)
    joined: dict[tuple[int, ...], int] = {}
    for cell, who in reading.items():
        key = tuple(sorted(set(who)))
        joined[key] = joined.get(key, 0) + int(sizes[cell])
    return [(list(key), size) for key, size in joined.items()]


def joined_nets(weights: Floats, nets: Mapping[tuple[int, ...], float]) -> Hypergraph:
    """The hypergraph of vertices that weigh `weights` and of nets, pins with their weight."""
    start = np.concatenate([[0], np.cumsum([len(pins) for pins in nets])]).astype(np.int64)
    pins = np.array([pin for net in nets for pin in net], dtype=np.int64)
    return Hypergraph(vertex_weights=weights, net_weights=np.array(list(nets.values())), net_start=start, pins=pins)
