"""What moves between the passes of a micro-batch, as tasks: activations forward, their gradients backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator import collectives
from simulator.distinct import runs
from simulator.expert_routing import Routing
from simulator.lowering.exchange.exchanges import Exchange, Messages, Transfer
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.graph_builder import GraphBuilder, spread
from simulator.lowering.tasks.passes import Passes
from simulator.lowering.tasks.plain_edges import plain_edges
from simulator.taskgraph import Floats, Ints, Kind, Route


def add_exchanges(builder: GraphBuilder, model: ShardedModel, passes: Passes, own_buffers: bool) -> None:
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
        read = [position for position in positions if model.profile.consumers[position]]
        if read:
            _add_exchanges(builder, model, passes, read, own_buffers)


def _add_messages(
    builder: GraphBuilder, model: ShardedModel, passes: Passes, positions: Sequence[int], own_buffers: bool
) -> None:
    """Append a message from each shard to each device that reads it, and back, of several layers in a row."""
    edges = plain_edges(model, positions)
    producer, reader = passes.first[edges.source] + edges.producer, passes.first[edges.target] + edges.shard
    size, counts = edges.size_bytes, edges.counts
    if not len(size):
        builder.depend(reader, producer)
        builder.depend(producer + passes.total, reader + passes.total)
        return
    number, local, away = edges.entry, edges.entry < 0, edges.entry >= 0
    builder.depend(reader[local], producer[local])
    builder.depend(producer[local] + passes.total, reader[local] + passes.total)
    before = np.cumsum(counts) - counts  # messages of earlier layers, one way
    layer, shard, target = edges.layer, edges.sender, edges.device
    sender = passes.first[layer] + shard
    home = passes.device[sender]
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
    builder: GraphBuilder, model: ShardedModel, passes: Passes, positions: Sequence[int], own_buffers: bool
) -> None:
    """Append what `ShardedModel.exchanges` says of several layers in a row, of each forward and then backward.

    What a layer receives that is recomputed together with this one, or receives it again, is dropped when its forward
    pass has ended. Layers with the same exchanges are joined to their readers together.
    """

    def ends(at: Ints, consumers: Ints, own: Ints, readers: Ints) -> list[Ends]:
        frees = np.where(_dropping(model, passes, at.tolist(), consumers), readers, passes.last[readers])
        forth = Ends(terms=own, targets=readers, frees=frees)
        return [forth, Ends(terms=readers + passes.total, targets=own + passes.total, frees=passes.last[own])]

    readers = {position: model.profile.consumers[position] for position in positions}
    held = add_in_a_row(builder, model, passes, readers, (Kind.ACTIVATION, Kind.GRADIENT), ends)
    for each in () if own_buffers else held:
        hold(builder, each)


class Ends(NamedTuple):
    """The tasks of rows of layers, one row each, that a direction of an exchange joins, see `ExchangeTasks.join`."""

    terms: Ints
    targets: Ints
    frees: Ints


def add_in_a_row(
    builder: GraphBuilder,
    model: ShardedModel,
    passes: Passes,
    readers: Mapping[int, Sequence[int]],
    kinds: Sequence[Kind],
    ends: Callable[[Ints, Ints, Ints, Ints], Sequence[Ends]],
) -> Iterator[Sequence[Held]]:
    """Append what moves of layers to some of their readers, forward or, with two kinds, of each forward and then back.

    readers: by layer. ends: of layers, their readers and the forward tasks of both, for each direction. Returns what
    the transfers take, and what is given back.
    """
    layers_of: dict[tuple[int, int, float], list[int]] = {}  # numbers among the positions
    drawn: dict[int, list[ExchangeTasks]] = {}
    of_layer, positions = [], list(readers)
    for number, (position, reading) in enumerate(readers.items()):
        exchanges, element_bytes = model.exchanges(position, reading), model.profile.element_bytes(position)
        if id(exchanges) not in drawn:
            ends_of = [model.profile.layers[end] for end in (position, *reading)]
            routing = next((layer.routing for layer in ends_of if layer.routing), None)
            draw = partial(ExchangeTasks, builder, exchanges.devices, element_bytes, routing=routing)
            drawn[id(exchanges)] = [draw(each) for each in (exchanges.forward, exchanges.backward)[: len(kinds)]]
        of_layer.append(drawn[id(exchanges)])
        layers_of.setdefault((id(exchanges.forward), id(exchanges.backward), element_bytes), []).append(number)
    every = [direction for directions in of_layer for direction in directions]
    counts = np.array([len(direction) for direction in every])
    begin = (len(builder) + np.cumsum(counts) - counts).reshape(-1, len(kinds))  # (positions, directions)
    columns = {name: np.concatenate([direction.columns[name] for direction in every]) for name in ExchangeTasks.COLUMNS}
    kind, layer = np.tile(kinds, len(positions)), np.repeat(positions, len(kinds))
    builder.add(np.repeat(kind, counts), int(counts.sum()), layer=np.repeat(layer, counts), **columns)
    held: list[tuple[Held, Held]] = []
    for numbers in layers_of.values():
        at, begins = np.array(positions)[numbers], begin[numbers]
        consumers = np.array([readers[position] for position in at.tolist()])  # (layers, readers)
        joined = ends(at, consumers, _tasks(passes, at[:, None]), _tasks(passes, consumers))
        devices = np.array([of_layer[number][0].devices for number in numbers])  # (layers, devices of one)
        for way, (direction, tasks) in enumerate(zip(of_layer[numbers[0]], joined, strict=True)):
            held.append(direction.join(begins[:, way : way + 1], devices, **tasks._asdict()))
    return zip(*held, strict=True)


def _tasks(passes: Passes, layers: Ints) -> Ints:
    """The forward tasks of rows of layers, shape (rows, layers of a row); rows have equally many shards."""
    counts = np.diff(passes.first)[layers[0]]
    tasks: Ints = np.repeat(passes.first[layers], counts, axis=1) + runs(0, counts)
    return tasks


def _dropping(model: ShardedModel, passes: Passes, positions: Sequence[int], consumers: Ints) -> npt.NDArray[np.bool_]:
    """Whether the tasks that read the output of layers drop it after their forward pass: (layers, tasks) or (1, 1)."""
    dropping = [(*model.recomputed_readers(i), *model.receiving_again(i)) for i in positions]
    if not any(dropping):
        return np.zeros((1, 1), dtype=np.bool_)
    rows = [[reader in dropped for reader in row] for row, dropped in zip(consumers.tolist(), dropping, strict=True)]
    return np.repeat(np.array(rows), np.diff(passes.first)[consumers[0]], axis=1)


class Held(NamedTuple):
    """Memory that transfers of equal exchanges take, or give back where sizes are below 0.

    order: the first transfer of each exchange; tasks, devices and sizes have one row for each.
    """

    order: Ints
    tasks: Ints
    devices: Ints
    sizes: Floats


def hold(builder: GraphBuilder, held: Sequence[Held]) -> None:
    """Let transfers take memory, or give it back, exchange after exchange."""
    rows = [[spread(column, each.tasks.shape).ravel() for column in each] for each in held]
    if rows:
        order, *columns = (np.concatenate(column) for column in zip(*rows, strict=True))
        in_order = np.argsort(order, kind="stable")
        builder.allocate(*(column[in_order] for column in columns))


class ExchangeTasks:
    """Tasks of one direction of an exchange, of one layer or of several that exchange alike.

    devices: the device of each number in it, shape (devices,). routing: of the tokens that it moves.
    """

    COLUMNS = ("device", "route", "bytes", "shard")

    def __init__(
        self,
        builder: GraphBuilder,
        devices: Ints,
        element_bytes: float,
        exchange: Exchange,
        routing: Routing | None = None,
    ) -> None:
        self._builder, self._exchange, self.devices = builder, exchange, devices
        if exchange.messages is not None:
            self._be_messages(exchange.messages, element_bytes)
            return
        routed, members = [], []
        for transfer in exchange.transfers:
            ends = tuple(devices[list(transfer.devices)].tolist())
            size = transfer.elements * element_bytes
            if transfer.pattern == "message":
                routed.append((ends[1], builder.route(Route((ends,))), size, transfer.box))
            else:
                route, sent_bytes = collectives.exchange(transfer.pattern, ends, size)
                if transfer.pattern == "all-to-all" and routing:
                    # tokens on their way are a mean: whole bytes add up without rounding, see `equal_links`
                    route, sent_bytes = replace(route, routing=routing), float(round(sent_bytes))
                routed.append((-1, builder.route(route), sent_bytes, transfer.box))
            members.append(transfer.devices[1:] if transfer.pattern == "message" else transfer.devices)
        values = zip(*routed, strict=True) if routed else [()] * len(self.COLUMNS)
        self.columns = {name: np.array(column) for name, column in zip(self.COLUMNS, values, strict=True)}
        self._kept = np.array([received_bytes(transfer, element_bytes) for transfer in exchange.transfers], dtype=float)
        self._transfer = np.repeat(np.arange(len(members)), [len(ends) for ends in members] or 0)
        self._receiver = np.array([number for ends in members for number in ends], dtype=np.int64)

    def _be_messages(self, messages: Messages, element_bytes: float) -> None:
        """The same of messages alone, of which a search lowers millions, without a look at each."""
        sources, targets = self.devices[messages.ends].T
        sizes, route = messages.elements * element_bytes, self._builder.message_routes(sources, targets)
        columns = targets, route, sizes, messages.boxes
        self.columns = dict(zip(self.COLUMNS, columns, strict=True))
        self._kept, self._transfer, self._receiver = sizes, np.arange(len(sizes)), messages.ends[:, 1]

    def __len__(self) -> int:
        return len(self._exchange.transfers)

    def join(self, begin: Ints, devices: Ints, *, terms: Ints, targets: Ints, frees: Ints) -> tuple[Held, Held]:
        """Let what was appended wait for what it carries, and what it is for wait for it.

        Returns what it takes, and what is given back. All have a row for each layer. begin: the first transfer, shape
        (layers, 1). devices: of each number in the exchange. terms, targets: the tasks that its numbers mean. frees:
        for each target, the task at whose end what it received is given back.
        """
        depend, exchange = self._builder.depend, self._exchange
        added = begin + np.arange(len(self))
        depend(added[:, exchange.needs[:, 0]], terms[:, exchange.needs[:, 1]])
        depend(added[:, exchange.after[:, 0]], added[:, exchange.after[:, 1]])
        depend(targets[:, exchange.arrivals[:, 0]], added[:, exchange.arrivals[:, 1]])
        depend(targets[:, exchange.local[:, 0]], terms[:, exchange.local[:, 1]])
        transfer, device, first = exchange.received.T
        taken = Held(begin, added[:, self._transfer], devices[:, self._receiver], self._kept[self._transfer])
        return taken, Held(begin, frees[:, first], devices[:, device], -self._kept[transfer])


def received_bytes(transfer: Transfer, element_bytes: float) -> float:
    """What a transfer leaves on each device that receives it; an all-reduce works in place."""
    n, whole = len(transfer.devices), transfer.elements * element_bytes
    shares = {"message": 1.0, "all-reduce": 0.0, "all-gather": (n - 1) / n, "reduce-scatter": 1 / n}
    return whole * shares.get(transfer.pattern, (n - 1) / n**2)
