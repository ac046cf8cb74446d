"""Profile, Cluster, Plan -> TaskGraph.

One micro-batch is lowered, then repeated: every micro-batch has the same shards. The schedule adds the order
in which each device runs its passes, and the synchronisation adds collectives and updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.lowering.crossings import crossings_of, element_bytes, reads_of
from simulator.lowering.gradients import add_synchronisation, static_bytes
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.passes import Passes, add_gradients, add_passes, flat_slots
from simulator.lowering.rendezvous import ASKS, add_rendezvous
from simulator.lowering.schedules import STASHING, schedule, stages
from simulator.lowering.weight_stashing import add_updates, stashed_bytes
from simulator.plan import Plan
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph
from simulator.workload import Profile


def lower(profile: Profile, cluster: Cluster, plan: Plan) -> TaskGraph:
    """The tasks of one training step of `profile` on `cluster` under `plan`.

    Raises InputError when the plan does not fit the profile, the cluster or its own schedule.
    """
    plan.check(profile, cluster)
    builder, meets = GraphBuilder(), cluster.rendezvous and plan.schedule in ASKS
    passes = add_passes(builder, profile, cluster, plan)
    for position in range(len(profile.layers)):
        _add_exchange(builder, profile, plan, passes, position, kept=meets)
    updates = add_updates(builder, profile, cluster, plan) if plan.schedule in STASHING else {}
    per_microbatch = len(builder)
    builder.repeat(plan.microbatches, priority_step=2 * len(profile.layers))
    starts = np.arange(plan.microbatches) * per_microbatch
    if plan.schedule not in STASHING:
        add_gradients(builder, profile, cluster, plan, passes, starts)
    orders = _add_order(builder, profile, plan, passes, starts, updates)
    if meets:
        add_rendezvous(builder, orders, plan.schedule)

    @cache
    def by_device(layer: int, slot: int) -> dict[int, Ints]:
        placement = plan.placements[profile.layers[layer].name]
        owners = placement.array[:, slot].ravel()
        order = np.argsort(owners, kind="stable")
        tasks = passes.last[passes.forward(layer)][flat_slots(placement, slot)][order]
        devices, first = np.unique(owners[order], return_index=True)
        parts = zip(devices.tolist(), np.split(tasks, first[1:]), strict=True)
        return {device: np.add.outer(starts, mine).ravel() for device, mine in parts}

    def backwards(layer: int, slot: int, device: int) -> Ints:
        return by_device(layer, slot)[device]

    whole = [np.add.outer(starts, passes.backwards_on(device)).ravel() for device in range(len(cluster.devices))]
    add_synchronisation(builder, profile, cluster, plan, backwards, whole)
    _add_overheads(builder, cluster, orders, meets)
    names = [layer.name for layer in profile.layers]
    static = static_bytes(profile, cluster, plan)
    if meets:
        static += _kept_bytes(builder, len(static))
    if plan.schedule in STASHING:
        static += stashed_bytes(profile, cluster, plan)
    return builder.build(static, names)


def _add_overheads(builder: GraphBuilder, cluster: Cluster, orders: list[list[Ints]], meets: bool) -> None:
    """Lengthen compute by what the runtime does besides; torch's pipelines also divide gradients before an update.

    That reads and writes one tensor, where the update (see `addition_s`) reads and writes eight.
    """
    seconds = builder.column("seconds")
    if meets:
        seconds[builder.column("kind") == Kind.UPDATE] *= 1 + 2 / 8
    seconds[builder.column("route") < 0] += cluster.task_overhead_s
    for order in orders:
        seconds[[tasks[0] for tasks in order]] += cluster.pass_overhead_s


def _add_exchange(
    builder: GraphBuilder, profile: Profile, plan: Plan, passes: Passes, position: int, kept: bool
) -> None:
    """Join a layer to its readers: directly on one device, through an activation and a gradient across two.

    A received activation stays for the backward pass of its first reader there; a received gradient until
    its producer's backward has used it. Partial gradients are summed before they are sent. kept: what is received has
    its own place, from step to step (`_kept_bytes`).
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
        "allocated_bytes": 0.0 if kept else size,
    }
    home = passes.device[sender]
    there, back = builder.message_routes(home, crossing.device), builder.message_routes(crossing.device, home)
    activation = builder.add(Kind.ACTIVATION, count, device=crossing.device, route=there, **columns)
    gradient = builder.add(Kind.GRADIENT, count, device=home, route=back, **columns)
    builder.depend(activation, sender)
    builder.depend(reader[away], activation[crossing.entry[away]])
    builder.depend(gradient[crossing.entry[away]], reader[away] + passes.total)
    builder.depend(sender + passes.total, gradient)
    if kept:
        return
    keeper = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(keeper, crossing.entry[away], reader[away])
    freed = builder.column("freed_bytes")
    np.add.at(freed, passes.last[keeper], size)
    np.add.at(freed, passes.last[sender], size)


def _kept_bytes(builder: GraphBuilder, devices: int) -> Floats:
    """By device, what torch's pipelines keep for the activations and gradients of all micro-batches to come into."""
    mine = np.isin(builder.column("kind"), (Kind.ACTIVATION, Kind.GRADIENT))
    device, size = (builder.column(name)[mine] for name in ("device", "bytes"))
    found = np.zeros(devices)
    np.add.at(found, device, size)
    return found


def _add_order(
    builder: GraphBuilder, profile: Profile, plan: Plan, passes: Passes, starts: Ints, updates: Mapping[int, int]
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
            found = [
                np.append(passes.of(own[chunk], kind), np.array(then.get(kind, []), dtype=np.int64)) + starts[m]
                for kind, m, chunk in order
            ]
            orders.append([tasks for tasks in found if len(tasks)])
            chain = np.concatenate(orders[-1])
            builder.depend(chain[1:], chain[:-1])
    return orders
