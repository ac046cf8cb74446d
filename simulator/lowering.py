"""Profile, Cluster, Plan -> TaskGraph.

One micro-batch is lowered, then repeated: every micro-batch has the same shards. The schedule adds the order
in which each device runs its passes, and the synchronisation adds collectives and updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from simulator.builder import GraphBuilder
from simulator.cluster import Cluster
from simulator.costs import shard_seconds
from simulator.exchange import crossings_of, element_bytes, reads_of, replicas_of, shard_elements
from simulator.gradients import add_synchronisation, addition_s, static_bytes
from simulator.plan import Placement, Plan
from simulator.regions import shards
from simulator.rendezvous import add_rendezvous
from simulator.schedules import HANDSHAKES, SPLIT, STASHING, schedule, stages
from simulator.stashing import add_updates, stashed_bytes
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph
from simulator.workload import Profile


def lower(profile: Profile, cluster: Cluster, plan: Plan) -> TaskGraph:
    """The tasks of one training step of `profile` on `cluster` under `plan`.

    Raises InputError when the plan does not fit the profile, the cluster or its own schedule.
    """
    plan.check(profile, cluster)
    builder = GraphBuilder()
    passes = _add_passes(builder, profile, cluster, plan)
    for position in range(len(profile.layers)):
        _add_exchange(builder, profile, plan, passes, position)
    updates = add_updates(builder, profile, cluster, plan) if plan.schedule in STASHING else {}
    per_microbatch = len(builder)
    builder.repeat(plan.microbatches, priority_step=2 * len(profile.layers))
    starts = np.arange(plan.microbatches) * per_microbatch
    if plan.schedule not in STASHING:
        _accumulate(builder, profile, cluster, plan, passes, starts)
    orders = _add_order(builder, profile, plan, passes, starts, updates)
    if cluster.rendezvous and plan.schedule in HANDSHAKES:
        add_rendezvous(builder, orders, waits_for_sends=HANDSHAKES[plan.schedule])

    @cache
    def by_device(layer: int, slot: int) -> dict[int, Ints]:
        placement = plan.placements[profile.layers[layer].name]
        owners = placement.array[:, slot].ravel()
        order = np.argsort(owners, kind="stable")
        tasks = passes.last[passes.forward(layer)][_flat_slots(placement, slot)][order]
        devices, first = np.unique(owners[order], return_index=True)
        parts = zip(devices.tolist(), np.split(tasks, first[1:]), strict=True)
        return {device: np.add.outer(starts, mine).ravel() for device, mine in parts}

    def backwards(layer: int, slot: int, device: int) -> Ints:
        return by_device(layer, slot)[device]

    whole = [np.add.outer(starts, passes.backwards_on(device)).ravel() for device in range(len(cluster.devices))]
    add_synchronisation(builder, profile, cluster, plan, backwards, whole)
    builder.column("seconds")[builder.column("route") < 0] += cluster.task_overhead_s
    names = [layer.name for layer in profile.layers]
    static = static_bytes(profile, cluster, plan)
    if plan.schedule in STASHING:
        static += stashed_bytes(profile, cluster, plan)
    return builder.build(static, names)


def _flat_slots(placement: Placement, slot: int) -> Ints:
    """Flat shard numbers of one channel slot."""
    return np.arange(len(placement.devices)).reshape(placement.degrees)[:, slot].ravel()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passes:
    """Where the forward and backward tasks of a micro-batch stand: layer after layer, shard after shard.

    last: for each forward task, the one that ends its backward pass: its weight gradient where that is split off.
    """

    first: Ints
    device: Ints
    last: Ints
    total: int

    def forward(self, layer: int) -> Ints:
        return np.arange(self.first[layer], self.first[layer + 1])

    def of(self, forward: Ints, kind: Kind) -> Ints:
        """The tasks of one kind of pass over the layers that `forward` tasks run, in their order."""
        if kind == Kind.FORWARD:
            return forward
        backward = forward[::-1] + self.total
        last: Ints = self.last[forward[::-1]]
        return backward if kind == Kind.BACKWARD else last[last != backward]

    def backwards_on(self, device: int) -> Ints:
        """What ends the backward passes of a device; a split pass also has its first part ended by then."""
        found: Ints = self.last[self.device == device]
        return found


def _add_passes(builder: GraphBuilder, profile: Profile, cluster: Cluster, plan: Plan) -> _Passes:
    """Append forward and backward of every shard of one micro-batch; backward needs its own forward."""
    placements = [plan.placements[layer.name] for layer in profile.layers]
    device = np.concatenate([np.array(placement.devices, dtype=np.int64) for placement in placements])
    sizes = [len(placement.devices) for placement in placements]
    first = np.concatenate([[0], np.cumsum(sizes)])
    layer = np.repeat(np.arange(len(sizes)), sizes)
    shard = np.concatenate([np.arange(size) for size in sizes])
    seconds = np.concatenate([pass_seconds(profile, plan, position) for position in range(len(sizes))], axis=1)
    seconds = seconds / np.array(cluster.speeds)[device]
    saved, output = _pass_bytes(profile, plan)
    columns = {"device": device, "layer": layer, "shard": shard}
    forward = builder.add(
        Kind.FORWARD, len(device), seconds=seconds[0], priority=layer, allocated_bytes=saved, **columns
    )
    weight_s = seconds[1] * _weight_fractions(profile, plan)[layer]
    backward = builder.add(
        Kind.BACKWARD,
        len(device),
        seconds=seconds[1] - weight_s,
        priority=2 * len(sizes) - 1 - layer,
        allocated_bytes=output,
        **columns,
    )
    builder.depend(backward, forward)
    last = backward.copy()
    split = np.flatnonzero(weight_s > 0)
    columns = {"device": device[split], "layer": layer[split], "shard": shard[split]}
    last[split] = builder.add(
        Kind.WEIGHT, len(split), seconds=weight_s[split], priority=2 * len(sizes) - 1 - layer[split], **columns
    )
    builder.depend(last[split], backward[split])
    builder.column("freed_bytes")[last] += saved + output
    return _Passes(first=first, device=device, last=last, total=len(device))


def _accumulate(
    builder: GraphBuilder, profile: Profile, cluster: Cluster, plan: Plan, passes: _Passes, starts: Ints
) -> None:
    """Lengthen backward passes by the addition of their gradients to those that their device has already.

    A device keeps the gradient that it makes first. Later micro-batches add theirs to it, and in the first one those
    of its further shards with the same parameters.
    """
    seconds = builder.column("seconds")
    for piece in replicas_of(profile, plan):
        placement = plan.placements[profile.layers[piece.layer].name]
        last = passes.last[passes.forward(piece.layer)][_flat_slots(placement, piece.slot)]
        device = placement.array[:, piece.slot].ravel()
        added_s = addition_s(profile, piece) / np.array(cluster.speeds)[device]
        seconds[np.add.outer(starts[1:], last)] += added_s
        further = np.delete(np.arange(len(last)), np.unique(device, return_index=True)[1])
        seconds[last[further]] += added_s[further]


def _weight_fractions(profile: Profile, plan: Plan) -> Floats:
    """The part of each layer's backward pass that makes parameter gradients, where the schedule splits it.

    Products for inputs and for parameters cost as much as each other (Qi et al., ICLR 2024, section 3). Nobody waits
    for gradients of the first stage, which therefore does its whole backward pass then, as torch's runtime does.
    """
    found = np.zeros(len(profile.layers))
    if plan.schedule in SPLIT:
        found[[layer.parameter_bytes > 0 for layer in profile.layers]] = 0.5
        found[stages(profile, plan)[0]] = 1.0
    return found


def pass_seconds(profile: Profile, plan: Plan, position: int) -> Floats:
    """(forward, backward) seconds of each shard of a layer at speed 1, shape (2, shards)."""
    layer = profile.layers[position]
    placement = plan.placements[layer.name]
    sample, channel, height, width = (
        np.array([b - a for a, b in axis])
        for axis in shards(layer, plan.microbatch_size, placement.degrees, placement.samples)
    )
    area = np.multiply.outer(height, width).ravel()
    plane = layer.output_shape[1] * layer.output_shape[2]
    unique = [np.unique(values, return_inverse=True) for values in (sample, channel, area)]
    table = np.array(
        [
            [
                [shard_seconds(profile, layer, n, c / layer.channels, a / plane) for a in unique[2][0]]
                for c in unique[1][0]
            ]
            for n in unique[0][0]
        ]
    )
    chosen = table[np.ix_(*(inverse.ravel() for _, inverse in unique))]
    return chosen.reshape(-1, 2).T


def _pass_bytes(profile: Profile, plan: Plan) -> tuple[Floats, Floats]:
    """(saved, output) bytes of every shard of one micro-batch, all layers in a row."""
    saved, output = [], []
    for position, layer in enumerate(profile.layers):
        elements = shard_elements(profile, plan.placements[layer.name], position, plan.microbatch_size)
        bytes_each = element_bytes(profile, position)
        output.append(elements * bytes_each)
        saved.append(elements * (bytes_each * layer.saved_bytes / layer.output_bytes if layer.output_bytes else 0.0))
    return np.concatenate(saved), np.concatenate(output)


def _add_exchange(builder: GraphBuilder, profile: Profile, plan: Plan, passes: _Passes, position: int) -> None:
    """Join a layer to its readers: directly on one device, through an activation and a gradient across two.

    A received activation stays for the backward pass of its first reader there; a received gradient until
    its producer's backward has used it. Partial gradients are summed before they are sent.
    """
    found = reads_of(profile, plan.placements, plan.microbatch_size, position)
    if not len(found.producer):
        return
    producer = passes.first[position] + found.producer
    reader = passes.first[found.consumer] + found.shard
    source, target = passes.device[producer], passes.device[reader]
    crossing = crossings_of(found, source, target)
    local, away = crossing.entry < 0, crossing.entry >= 0
    builder.depend(reader[local], producer[local])
    builder.depend(producer[local] + passes.total, reader[local] + passes.total)
    if not len(crossing.shard):
        return
    sender = passes.first[position] + crossing.shard
    count, size = len(sender), crossing.elements * element_bytes(profile, position)
    columns: dict[str, npt.ArrayLike] = {
        "layer": position,
        "shard": crossing.shard,
        "bytes": size,
        "allocated_bytes": size,
    }
    home = passes.device[sender]
    there, back = builder.message_routes(home, crossing.device), builder.message_routes(crossing.device, home)
    activation = builder.add(Kind.ACTIVATION, count, device=crossing.device, route=there, **columns)
    gradient = builder.add(Kind.GRADIENT, count, device=home, route=back, **columns)
    builder.depend(activation, sender)
    builder.depend(reader[away], activation[crossing.entry[away]])
    builder.depend(gradient[crossing.entry[away]], reader[away] + passes.total)
    builder.depend(sender + passes.total, gradient)
    keeper = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(keeper, crossing.entry[away], reader[away])
    freed = builder.column("freed_bytes")
    np.add.at(freed, passes.last[keeper], size)
    np.add.at(freed, passes.last[sender], size)


def _add_order(
    builder: GraphBuilder, profile: Profile, plan: Plan, passes: _Passes, starts: Ints, updates: Mapping[int, int]
) -> list[list[Ints]]:
    """Chain each device's passes in the order of the plan's schedule; dataflow leaves them free.

    updates: by device, its task of one micro-batch that follows the backward pass. Returns the tasks of each pass of
    each device.
    """
    instructions = schedule(plan.schedule)
    orders: list[list[Ints]] = []
    if instructions is None:
        return orders
    owned: dict[tuple[int, ...], list[list[int]]] = {}
    for layers in stages(profile, plan):
        owned.setdefault(plan.placements[profile.layers[layers[0]].name].device_set, []).append(layers)
    for place, (devices, chunks) in enumerate(owned.items()):
        order = list(instructions(len(owned), place, plan.microbatches, len(chunks)))
        tasks = [np.concatenate([passes.forward(layer) for layer in layers]) for layers in chunks]
        for device in devices:
            own = [forward[passes.device[forward] == device] for forward in tasks]
            then = {Kind.BACKWARD: [updates[device]]} if device in updates else {}
            orders.append(
                [
                    np.append(passes.of(own[chunk], kind), np.array(then.get(kind, []), dtype=np.int64)) + starts[m]
                    for kind, m, chunk in order
                ]
            )
            chain = np.concatenate(orders[-1])
            builder.depend(chain[1:], chain[:-1])
    return orders
