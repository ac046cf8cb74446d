"""What moves between the passes of a micro-batch, as tasks: activations forward, their gradients backward."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering.exchanges import Exchange, Transfer
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.passes import Passes
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Ints, Kind, Route


def add_exchanges(
    builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, own_buffers: bool
) -> None:
    """Join every layer to its readers: directly on one device, through an activation and a gradient across two.

    A received activation stays for the backward pass of its first reader there; a received gradient until
    its producer's backward has used it. Partial gradients are summed before they are sent. own_buffers: what is
    received has a buffer of its own that stays from step to step.
    """
    layers = range(len(model.profile.layers))
    for plain, positions in groupby(layers, lambda position: model.has_plain_edge[position]):
        if plain:
            _add_messages(builder, model, passes, list(positions), own_buffers)
            continue
        for position in positions:
            if model.profile.consumers[position]:
                _add_exchanges(builder, model, cluster, passes, position, own_buffers)


def _add_messages(
    builder: GraphBuilder, model: ShardedModel, passes: Passes, positions: Sequence[int], own_buffers: bool
) -> None:
    """Append a message from each shard to each device that reads it, and back, of several layers in a row."""
    edges = [model.plain_edge(position) for position in positions]
    counts = np.array([len(edge.size_bytes) for edge in edges])
    before = np.cumsum(counts) - counts  # messages of earlier layers, one way
    producer = np.concatenate([passes.first[i] + edge.reads.producer for i, edge in zip(positions, edges, strict=True)])
    reader = passes.first[np.concatenate([edge.reads.consumer for edge in edges])]
    reader = reader + np.concatenate([edge.reads.shard for edge in edges])
    number = np.concatenate([edge.crossings.entry for edge in edges])
    number = np.where(number < 0, -1, number + np.repeat(before, [len(edge.reads.producer) for edge in edges]))
    local, away = number < 0, number >= 0
    builder.depend(reader[local], producer[local])
    builder.depend(producer[local] + passes.total, reader[local] + passes.total)
    if not counts.any():
        return
    layer, shard = np.repeat(positions, counts), np.concatenate([edge.crossings.shard for edge in edges])
    sender, target = passes.first[layer] + shard, np.concatenate([edge.crossings.device for edge in edges])
    size, home = np.concatenate([edge.size_bytes for edge in edges]), passes.device[sender]
    there = np.arange(len(size)) + np.repeat(before, counts)  # of a layer's tasks first all activations,
    back = there + np.repeat(counts, counts)  # then their gradients
    both = np.argsort(np.concatenate([there, back]))

    def in_order(activations: npt.NDArray[Any], gradients: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([activations, gradients])[both]

    sources, targets, sizes = in_order(home, target), in_order(target, home), in_order(size, size)
    tasks = builder.add(
        in_order(np.full(len(size), Kind.ACTIVATION), np.full(len(size), Kind.GRADIENT)),
        2 * len(size),
        device=targets,
        route=builder.message_routes(sources, targets),
        layer=in_order(layer, layer),
        shard=in_order(shard, shard),
        bytes=sizes,
        allocated_bytes=0.0 if own_buffers else sizes,
    )
    activation, gradient = tasks[there], tasks[back]
    builder.depend(activation, sender)
    builder.depend(reader[away], activation[number[away]])
    builder.depend(gradient[number[away]], reader[away] + passes.total)
    builder.depend(sender + passes.total, gradient)
    if own_buffers:
        return
    first_reader = np.full(len(size), np.iinfo(np.int64).max)
    np.minimum.at(first_reader, number[away], reader[away])
    freeing = in_order(passes.last[first_reader], passes.last[sender])
    np.add.at(builder.column("freed_bytes"), freeing, sizes)


def _add_exchanges(
    builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, position: int, own_buffers: bool
) -> None:
    """Append what `ShardedModel.exchanges` says of a layer, forward and backward.

    What a layer receives that is recomputed together with this one, or receives it again, is dropped when its forward
    pass has ended.
    """
    exchanges = model.exchanges(position)
    own = passes.forward(position)
    consumers = model.profile.consumers[position]
    readers = np.concatenate([passes.forward(consumer) for consumer in consumers])
    dropping = (*model.recomputed_readers(position), *model.receiving_again(position))
    dropped = [passes.forward(consumer) for consumer in dropping]
    frees = np.where(np.isin(readers, np.concatenate([own[:0], *dropped])), readers, passes.last[readers])
    tasks = ExchangeTasks(builder, cluster, exchanges.devices, position, model.profile.element_bytes(position))
    tasks.add(Kind.ACTIVATION, exchanges.forward, terms=own, targets=readers, frees=None if own_buffers else frees)
    back, forth = readers + passes.total, own + passes.total
    frees = passes.last[own]
    tasks.add(Kind.GRADIENT, exchanges.backward, terms=back, targets=forth, frees=None if own_buffers else frees)


class ExchangeTasks:
    """Tasks of one layer's exchanges. devices: the device of each number in them, shape (devices,)."""

    def __init__(
        self, builder: GraphBuilder, cluster: Cluster, devices: Ints, position: int, element_bytes: float
    ) -> None:
        self._builder, self._cluster, self._devices = builder, cluster, devices
        self._position, self._element_bytes = position, element_bytes

    def add(self, kind: Kind, exchange: Exchange, *, terms: Ints, targets: Ints, frees: Ints | None) -> Ints:
        """Append one direction. Returns the task of each transfer.

        terms, targets: the tasks that the exchange's numbers mean. frees: for each target, the task at whose end what
        it received is given back; None where buffers stay from step to step.
        """
        builder = self._builder
        added = self._transfers(kind, exchange.transfers, own_buffers=frees is None)
        builder.depend(added[exchange.needs[:, 0]], terms[exchange.needs[:, 1]])
        builder.depend(added[exchange.after[:, 0]], added[exchange.after[:, 1]])
        builder.depend(targets[exchange.arrivals[:, 0]], added[exchange.arrivals[:, 1]])
        builder.depend(targets[exchange.local[:, 0]], terms[exchange.local[:, 1]])
        if frees is not None and len(added):
            kept = np.array([received_bytes(transfer, self._element_bytes) for transfer in exchange.transfers])
            transfer, device, first = exchange.received.T
            builder.allocate(frees[first], self._devices[device], -kept[transfer])
        return added

    def _transfers(self, kind: Kind, transfers: Sequence[Transfer], own_buffers: bool) -> Ints:
        """Append transfers with what they take on the devices that receive them. Returns their tasks."""
        builder, routed, members = self._builder, [], []
        for transfer in transfers:
            devices = tuple(self._devices[list(transfer.devices)].tolist())
            size = transfer.elements * self._element_bytes
            if transfer.pattern == "message":
                routed.append((devices[1], Route((devices,)), size, 0.0))
            else:
                routed.append((-1, *collectives.exchange(transfer.pattern, self._cluster, devices, size)))
            members.append(devices[1:] if transfer.pattern == "message" else devices)
        if not routed:
            return np.zeros(0, dtype=np.int64)
        device, routes, sent_bytes, seconds = zip(*routed, strict=True)
        numbers = [builder.route(route) for route in routes]
        columns = {"device": device, "route": numbers, "bytes": sent_bytes, "seconds": seconds}
        boxes = [transfer.box for transfer in transfers]
        tasks = builder.add(kind, len(routed), layer=self._position, shard=boxes, **columns)
        if not own_buffers:
            counts = [len(devices) for devices in members]
            kept = [received_bytes(transfer, self._element_bytes) for transfer in transfers]
            builder.allocate(np.repeat(tasks, counts), np.concatenate(members), np.repeat(kept, counts))
        return tasks


def received_bytes(transfer: Transfer, element_bytes: float) -> float:
    """What a transfer leaves on each device that receives it; an all-reduce works in place."""
    n, whole = len(transfer.devices), transfer.elements * element_bytes
    shares = {"message": 1.0, "all-reduce": 0.0, "all-gather": (n - 1) / n, "reduce-scatter": 1 / n}
    return whole * shares.get(transfer.pattern, (n - 1) / n**2)
