"""The host's launch queue beside each device: how long each task takes to launch, and where the host waits.

    host      F1 F2 F3 F4 .  .  .  .  B4 B3 ...        ahead of the device, until it waits for what another stage sends
    device       F1---F2---F3---F4---    B4------B3------

What the host does once a step is a task of no length behind all others of a device, before which the host waits: it
takes as long to launch. So it lengthens the step of every device by exactly that, whether or not the device has an
update or sends something after it, and is no compute of the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from simulator.cluster import Cluster
from simulator.distinct import distinct
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.runtime import Runtime
from simulator.taskgraph import Ints, Kind, Route

DISTANT_CHECK = 4 / 3
"""Of a check between hosts, over one inside a host: what pipelines with tensor groups of two nodes took (Ultra-Scale
Playbook; those of four nodes and data-parallel groups of 16 agree)."""


def add_launches(
    builder: GraphBuilder,
    model: ShardedModel,
    cluster: Cluster,
    runtime: Runtime,
    passes: Passes,
    starts: Ints,
    orders: Sequence[Sequence[Ints]],
) -> None:
    """Fill in the launches of all tasks, and append what the host does once a step.

    starts: the first task of each micro-batch. orders: of each device that runs passes, the tasks of each pass.
    """
    seconds = {
        Kind.FORWARD: runtime.forward_launch_s,
        Kind.RECOMPUTE: runtime.forward_launch_s,
        Kind.BACKWARD: runtime.backward_launch_s,
        Kind.UPDATE: runtime.update_launch_s,
    }
    kind, launch_s = builder.column("kind"), builder.column("launch_s")
    for each in seconds:
        if seconds[each]:
            launch_s[kind == each] = seconds[each]
    if runtime.backward_launch_s:
        backward = np.arange(passes.total, 2 * passes.total)
        split = passes.last != backward
        halves = np.append(backward[split], passes.last[split])
        launch_s[np.add.outer(starts, halves)] = runtime.backward_launch_s / 2
    if runtime.update_launch_s:
        updates = np.flatnonzero((kind == Kind.UPDATE) & (builder.column("layer") < 0))  # of a device's optimizer
        updaters = np.array([device for piece in model.replicas for device in piece.devices], dtype=np.int64)
        layers = np.bincount(updaters, minlength=max(model.plan.devices) + 1)  # that each device updates
        launch_s[updates] *= layers[builder.column("device")[updates]]
    if runtime.message_pause_s and orders:
        _add_pauses(builder, model, orders, runtime.message_pause_s)
    if runtime.step_overhead_s:
        _add_step_overhead(builder, runtime.step_overhead_s)
    if runtime.collective_check_s:
        _add_checks(builder, cluster, runtime.collective_check_s)


def _add_checks(builder: GraphBuilder, cluster: Cluster, seconds: float) -> None:
    """Let a device's first task that waits for a collective take longer to launch, for each member of its group."""

    def check_s(route: Route) -> float:
        if len(route.single) == 1:  # a message
            return 0.0
        members = {*chain.from_iterable(route.single)}
        distant = len({cluster.devices[member].host for member in members}) > 1
        return seconds * len(members) * (DISTANT_CHECK if distant else 1.0)

    checks_s = np.append([check_s(route) for route in builder.routes], 0.0)  # the last of tasks without a route
    later, earlier = builder.edges()
    route, device = builder.column("route"), builder.column("device")[later]
    reads = np.flatnonzero((checks_s[route[earlier]] > 0) & (route[later] < 0))
    order = reads[np.lexsort((later[reads], device[reads], earlier[reads]))]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (np.diff(earlier[order]) != 0) | (np.diff(device[order]) != 0)
    np.add.at(builder.column("launch_s"), later[order[first]], checks_s[route[earlier[order[first]]]])


def _add_pauses(builder: GraphBuilder, model: ShardedModel, orders: Sequence[Sequence[Ints]], seconds: float) -> None:
    """Let the host wait before each pass that reads what another stage sent, or follows one that sent to another, and
    take `seconds` longer for each of the two: before the first task that reads, if any."""
    stages = (model.placements[layers[0]].device_set for layers in model.stages)
    stage = {device: number for number, devices in enumerate(stages) for device in devices}
    crosses = np.array(
        [any(stage.get(a) != stage.get(b) for a, b in route.pairs) for route in builder.routes], dtype=np.bool_
    )
    later, earlier = builder.edges()
    exchanged = np.isin(builder.column("kind"), (Kind.ACTIVATION, Kind.GRADIENT))
    message, reads, sends = np.zeros((3, len(builder)), dtype=np.bool_)
    message[exchanged] = crosses[builder.column("route")[exchanged]]
    reads[later[message[earlier]]] = True
    sends[earlier[message[later]]] = True
    for order in orders:
        sent = False
        for tasks in order:
            reading = tasks[reads[tasks]]
            if sent or len(reading):
                first = reading[0] if len(reading) else tasks[0]
                builder.column("host_waits")[first] = True
                builder.column("launch_s")[first] += seconds * (sent + (len(reading) > 0))
            sent = bool(sends[tasks].any())


def _add_step_overhead(builder: GraphBuilder, seconds: float) -> None:
    """Append to each device that computes a task behind its last ones and behind the last transfers that touch it."""
    route, device, (later, earlier) = builder.column("route"), builder.column("device"), builder.edges()
    devices, routes = distinct(device[route < 0]), builder.routes
    followed = np.zeros(len(builder), dtype=np.bool_)  # by a task of the same device; of transfers, by any
    followed[earlier[(route[earlier] >= 0) | ((route[later] < 0) & (device[later] == device[earlier]))]] = True
    own, crossing = (np.flatnonzero(~followed & side) for side in (route < 0, route >= 0))
    last = builder.add(Kind.UPDATE, len(devices), device=devices, launch_s=seconds, host_waits=True)
    builder.depend(last[np.searchsorted(devices, device[own])], own)
    crossing = crossing[np.argsort(route[crossing], kind="stable")]
    for transfers in np.split(crossing, np.flatnonzero(np.diff(route[crossing])) + 1) if len(crossing) else ():
        touched = np.array(routes[route[transfers[0]]].devices)
        at = np.searchsorted(devices[:-1], touched)  # of those that compute the last at most
        waiting = last[at[devices[at] == touched]]
        builder.depend(np.tile(waiting, len(transfers)), np.repeat(transfers, len(waiting)))
