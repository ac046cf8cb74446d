"""Where the bytes of a run go: from layer to layer and between replicas, inside nodes and between them.

Everything is read off the tasks that were simulated, so the sums are the report's communication volume.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.run import Run
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph
from simulator.workload import Profile

Bools = npt.NDArray[np.bool_]
INSIDE, BETWEEN = 0, 1
"""Columns of amounts of bytes: what stays inside a node, and what crosses between nodes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flows:
    """What a step computes, moves and holds, layer by layer; bytes of a whole step, there and back.

    seconds: compute, shape (layers, workers). producer, reader: layers, shape (edges,), each pair once. edge_bytes:
    activations and their gradients that cross, shape (edges, 2), columns INSIDE and BETWEEN. gradient_bytes: of
    synchronisation, shape (layers, 2). gathered_bytes: of parameters that are shared out, shape (layers, 2).
    replicated_bytes: copies of parameters, gradients and optimizer state beyond the first, shape (layers,).
    received_bytes: activations and gradients by receiver, shape (layers, workers).
    crossing_shards, crossing_targets: for each layer how many shards cross, and to how many devices the most read one.
    replica_pieces, replica_devices: for each layer how many pieces of its parameters have copies, and the most copies.
    """

    seconds: Floats
    producer: Ints
    reader: Ints
    edge_bytes: Floats
    gradient_bytes: Floats
    gathered_bytes: Floats
    replicated_bytes: Floats
    received_bytes: Floats
    crossing_shards: Ints
    crossing_targets: Ints
    replica_pieces: Ints
    replica_devices: Ints

    @property
    def activation_bytes(self) -> Floats:
        """Activations and their gradients by producing layer, shape (layers, 2)."""
        cut = np.zeros_like(self.gradient_bytes)
        np.add.at(cut, self.producer, self.edge_bytes)
        return cut

    @property
    def state_bytes(self) -> Floats:
        """Gradients and parameters that devices sum or gather, shape (layers, 2)."""
        return self.gradient_bytes + self.gathered_bytes

    @property
    def total_bytes(self) -> float:
        """The communication volume."""
        return float(self.edge_bytes.sum() + self.state_bytes.sum())

    @property
    def between_bytes(self) -> float:
        """How much of it crosses between nodes."""
        return float(self.edge_bytes[:, BETWEEN].sum() + self.state_bytes[:, BETWEEN].sum())


def flows_of(run: Run, profile: Profile, cluster: Cluster) -> Flows:
    """The flows of a simulated run."""
    graph, layers = run.graph, len(profile.layers)
    model = ShardedModel(profile, run.plan)
    carried = payload(graph, cluster)
    producer, reader, edge_bytes = _edges(graph, profile, carried)
    replicated, pieces, holders = _replicated(model)
    shards, targets = _crossing(graph, layers)
    return Flows(
        seconds=layer_seconds(run, cluster),
        producer=producer,
        reader=reader,
        edge_bytes=edge_bytes,
        gradient_bytes=_of_buckets(model, graph, Kind.SYNCHRONISATION, carried),
        gathered_bytes=_of_buckets(model, graph, Kind.PARAMETERS, carried),
        replicated_bytes=replicated,
        received_bytes=_by_worker(graph, _is_message(graph) & (graph.device >= 0), graph.bytes, cluster),
        crossing_shards=shards,
        crossing_targets=targets,
        replica_pieces=pieces,
        replica_devices=holders,
    )


def between_nodes_bytes(run: Run, cluster: Cluster) -> float:
    """How many of a step's bytes cross between nodes, without saying whose."""
    return float(payload(run.graph, cluster)[:, BETWEEN].sum())


def payload(graph: TaskGraph, cluster: Cluster) -> Floats:
    """Bytes of every task inside nodes and between them, shape (tasks, 2)."""
    hosts = [device.host for device in cluster.devices]
    pairs = np.zeros((len(graph.routes) + 1, 2))
    for number, route in enumerate(graph.routes):
        crossing = sum(hosts[source] != hosts[target] for source, target in route.pairs)
        pairs[number] = len(route.pairs) - crossing, crossing
    return graph.bytes[:, None] * pairs[graph.route]


def _edges(graph: TaskGraph, profile: Profile, payload: Floats) -> tuple[Ints, Ints, Floats]:
    """(producer, reader, bytes) of activations and their gradients.

    A message serves the layers whose forward pass waits for it (whose backward pass made it); they share it equally.
    """
    layers = len(profile.layers)
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_start))  # (dependencies,)
    there = (graph.kind[graph.dependencies] == Kind.ACTIVATION) & ~graph.is_transfer[owner] & (graph.layer[owner] >= 0)
    back = (graph.kind[owner] == Kind.GRADIENT) & (graph.kind[graph.dependencies] == Kind.BACKWARD)
    message = np.concatenate([graph.dependencies[there], owner[back]])
    other = np.concatenate([graph.layer[owner[there]], graph.layer[graph.dependencies[back]]])
    served = np.unique(message * layers + other)  # a message and a layer that it serves, each pair once
    message, other = served // layers, served % layers
    other = np.where(other == graph.layer[message], _first_readers(profile)[graph.layer[message]], other)
    share = payload[message] / np.bincount(message, minlength=len(graph))[message][:, None]
    alone = np.flatnonzero(_is_message(graph) & (graph.bytes > 0))
    alone = np.setdiff1d(alone, message)
    message, share = np.concatenate([message, alone]), np.concatenate([share, payload[alone]])
    other = np.concatenate([other, _first_readers(profile)[graph.layer[alone]]])
    numbers, which = np.unique(graph.layer[message] * layers + other, return_inverse=True)
    sums = np.zeros((len(numbers), 2))
    np.add.at(sums, which.ravel(), share)
    return numbers // layers, numbers % layers, sums


def _first_readers(profile: Profile) -> Ints:
    """For each layer the first that reads it, itself where none does."""
    return np.array([(*readers, i)[0] for i, readers in enumerate(profile.consumers)], dtype=np.int64)


def _of_buckets(model: ShardedModel, graph: TaskGraph, kind: Kind, payload: Floats) -> Floats:
    """Bytes of one kind of transfer by layer, shape (layers, 2); a bucket's are shared out by parameter bytes."""
    sums = np.zeros((len(model.profile.layers), 2))
    sent = (graph.kind == kind) & (graph.shard >= 0) & (graph.shard < len(model.buckets))
    of_bucket = np.zeros((len(model.buckets), 2))
    np.add.at(of_bucket, graph.shard[sent], payload[sent])
    for bucket, size in zip(model.buckets, of_bucket, strict=True):
        for piece in bucket.pieces:
            sums[piece.layer] += size * (piece.parameter_bytes / bucket.size_bytes)
    return sums


def _replicated(model: ShardedModel) -> tuple[Floats, Ints, Ints]:
    """By layer: bytes of state held beyond once, parameter pieces that have copies, and the most holders of one.

    What the stage of ZeRO shares out has as many copies as there are groups that share.
    """
    count, plan = len(model.profile.layers), model.plan
    per_parameter = (plan.optimizer_state, plan.states.gradient_ratio(model.profile.dtype), 1.0)  # in the stages' order
    held, pieces, holders = np.zeros(count), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for piece in model.replicas:
        copies = len(piece.devices) - 1
        repeats = (copies + 1) // model.shares(piece) - 1
        for stage, state in enumerate(per_parameter, start=1):
            beyond = repeats if stage <= plan.states.stage else copies
            held[piece.layer] += beyond * piece.parameter_bytes * state
        pieces[piece.layer] += copies > 0
        holders[piece.layer] = max(holders[piece.layer], copies + 1)
    return held, pieces, holders


def layer_seconds(run: Run, cluster: Cluster) -> Floats:
    """Compute seconds of each layer on each worker, shape (layers, workers)."""
    return _by_worker(run.graph, ~run.graph.is_transfer & (run.graph.layer >= 0), run.graph.seconds, cluster)


def _by_worker(graph: TaskGraph, tasks: Bools, amounts: Floats, cluster: Cluster) -> Floats:
    """Sums over tasks by their layer and worker, shape (layers, workers)."""
    layers, devices = len(graph.layer_names), len(cluster.devices)
    cell = graph.layer[tasks] * devices + graph.device[tasks]
    sums = np.bincount(cell, weights=amounts[tasks], minlength=layers * devices)
    return sums.astype(np.float64).reshape(layers, devices)[:, : cluster.workers]


def _is_message(graph: TaskGraph) -> Bools:
    """Which tasks carry an activation or its gradient."""
    messages: Bools = (graph.kind == Kind.ACTIVATION) | (graph.kind == Kind.GRADIENT)
    return messages


def _crossing(graph: TaskGraph, layers: int) -> tuple[Ints, Ints]:
    """By layer: shards of one micro-batch whose output crosses, and the most devices that one of them crosses to."""
    sent = (graph.kind == Kind.ACTIVATION) & (graph.microbatch <= 0)
    each = np.unique(np.stack([graph.layer[sent], graph.shard[sent], graph.device[sent]], axis=1), axis=0)
    shards, targets = np.unique(each[:, :2], axis=0, return_counts=True)
    most = np.zeros(layers, dtype=np.int64)
    np.maximum.at(most, shards[:, 0], targets)
    return np.bincount(shards[:, 0], minlength=layers).astype(np.int64), most
