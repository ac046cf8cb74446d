"""What moves between the passes of a micro-batch, as tasks: activations forward, their gradients backward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering.exchanges import Exchange, Transfer
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.passes import Passes
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Ints, Kind, Route


def add_exchange(
    builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, position: int, own_buffers: bool
) -> None:
    """Join a layer to its readers: directly on one device, through an activation and a gradient across two.

    A received activation stays for the backward pass of its first reader there; a received gradient until
    its producer's backward has used it. Partial gradients are summed before they are sent. own_buffers: what is
    received has a buffer of its own that stays from step to step.
    """
    if model.has_plain_edge[position]:
        _add_messages(builder, model, passes, position, own_buffers)
    elif model.profile.consumers[position]:
        _add_exchanges(builder, model, cluster, passes, position, own_buffers)


def _add_messages(builder: GraphBuilder, model: ShardedModel, passes: Passes, position: int, own_buffers: bool) -> None:
    """Append a message from each shard to each device that reads it, and back; many at once, as most edges are so."""
    reads = model.reads(position)
    if not len(reads.producer):
        return
    producer = passes.first[position] + reads.producer
    reader = passes.first[reads.consumer] + reads.shard
    crossing = model.crossings(position, reads)
    local, away = crossing.entry < 0, crossing.entry >= 0
    builder.depend(reader[local], producer[local])
    builder.depend(producer[local] + passes.total, reader[local] + passes.total)
    if not len(crossing.shard):
        return
    sender = passes.first[position] + crossing.shard
    count, size = len(sender), crossing.elements * model.profile.element_bytes(position)
    columns: dict[str, npt.ArrayLike] = {
        "layer": position,
        "shard": crossing.shard,
        "bytes": size,
        "allocated_bytes": 0.0 if own_buffers else size,
    }
    home = passes.device[sender]
    there, back = builder.message_routes(home, crossing.device), builder.message_routes(crossing.device, home)
    activation = builder.add(Kind.ACTIVATION, count, device=crossing.device, route=there, **columns)
    gradient = builder.add(Kind.GRADIENT, count, device=home, route=back, **columns)
    builder.depend(activation, sender)
    builder.depend(reader[away], activation[crossing.entry[away]])
    builder.depend(gradient[crossing.entry[away]], reader[away] + passes.total)
    builder.depend(sender + passes.total, gradient)
    if own_buffers:
        return
    first_reader = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_reader, crossing.entry[away], reader[away])
    freed = builder.column("freed_bytes")
    np.add.at(freed, passes.last[first_reader], size)
    np.add.at(freed, passes.last[sender], size)


def _add_exchanges(
    builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, position: int, own_buffers: bool
) -> None:
    """Append what `ShardedModel.exchanges` says of a layer, forward and backward.

    What a layer receives that is recomputed together with this one is dropped when its forward pass has ended.
    """
    exchanges = model.exchanges(position)
    own = passes.forward(position)
    consumers = model.profile.consumers[position]
    readers = np.concatenate([passes.forward(consumer) for consumer in consumers])
    dropped = [passes.forward(consumer) for consumer in model.recomputed_readers(position)]
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

    def add(self, kind: Kind, exchange: Exchange, *, terms: Ints, targets: Ints, frees: Ints | None) -> None:
        """Append one direction.

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
