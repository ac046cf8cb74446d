"""What the tasks of a step add up to, before any ratio is taken: Timeline, TaskGraph -> StepTotals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.transfers import link_bytes, link_work
from simulator.ordered_sum import ordered_sum
from simulator.report import memory
from simulator.report.critical_path import critical_path_s, path_shares
from simulator.report.deferred_rows import DeferredRows
from simulator.report.layer_use import LayerUse, layers_use
from simulator.report.resource_use import occupied_s
from simulator.report.slow_links import slow_links_s
from simulator.report.traffic import Communication, crossing_bytes, traffic_pairs
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph
from simulator.timeline import Timeline

PHASES: Mapping[str, Kind] = {
    "forward": Kind.ACTIVATION,
    "backward": Kind.GRADIENT,
    "synchronisation": Kind.SYNCHRONISATION,
    "parameters": Kind.PARAMETERS,
}
"""What is sent in each phase of a step."""


Shares = Mapping[tuple[str, str], float]
"""Seconds of a binding chain by resource, see `path_shares`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTotals:
    """Sums and peaks of one step, from which its Report follows. What is by device has shape (devices,)."""

    step_s: float
    compute_s: Floats
    """Seconds of each device's compute tasks, as they would take if nothing slowed them."""
    busy_s: Floats
    """Seconds in which each device computes."""
    launch_s: Floats
    """Seconds in which the next task of each device waits for its launch alone."""
    exposed_s: Floats
    """Seconds in which each device does neither while a transfer from or to it is in flight."""
    peak_bytes: Floats
    """The most that each device holds at a time."""
    static_bytes: Floats
    """What each device holds from step to step."""
    communication: Communication
    carried_bytes: Floats
    """What crosses each link, shape (links,)."""
    slow_links_s: Floats
    """See `report.slow_links`, shape (tiers,)."""
    link_work: Floats
    """Bytes of its bandwidth that this takes of each link, shape (links,)."""
    shares: Callable[[Floats], Shares]
    """The binding chain by resource, given link_work: a transfer counts for the most used link of its route."""
    critical_path_s: float
    """Seconds of the longest chain of dependencies if nothing contends."""
    tasks: int
    """How many there are, those included that others stand for."""
    layers: Sequence[LayerUse]
    engine: str


def totals_of(model: ShardedModel, cluster: Cluster, graph: TaskGraph, timeline: Timeline) -> StepTotals:
    """What a timeline of `graph`, which `model` was lowered to, adds up to."""
    devices = len(cluster.devices)
    owner = model.represented(devices)
    busy_s, launch_s, exposed_s = occupied_s(graph, timeline, owner)
    work = link_work(graph, cluster)
    return StepTotals(
        step_s=timeline.step_s,
        compute_s=graph.kept.get((_compute_seconds, devices), lambda: _compute_seconds(graph, devices))[owner],
        busy_s=busy_s,
        launch_s=launch_s,
        exposed_s=exposed_s,
        peak_bytes=memory.peak_bytes(graph, timeline, cluster)[owner],
        static_bytes=graph.static_bytes,
        communication=graph.kept.get((_communication, devices), lambda: _communication(graph, devices)),
        carried_bytes=link_bytes(graph, cluster),
        link_work=work,
        slow_links_s=slow_links_s(graph, cluster, timeline, work),
        shares=partial(path_shares, graph, cluster, timeline),
        critical_path_s=critical_path_s(graph, cluster),
        tasks=graph.kept.get(_tasks, lambda: _tasks(graph, owner)),
        layers=DeferredRows(len(model.profile.layers), lambda: layers_use(model, graph)),
        engine=timeline.engine,
    )


def _tasks(graph: TaskGraph, owner: Ints) -> int:
    """How many tasks there are, with those that the graph's stand for; owner: see `occupied_s`."""
    transfers = graph.is_transfer
    copies = np.array([route.copies for route in graph.routes], dtype=np.int64)
    return int(copies[graph.route[transfers]].sum() + np.bincount(owner)[graph.device[~transfers]].sum())


def _compute_seconds(graph: TaskGraph, devices: int) -> Floats:
    computes = ~graph.is_transfer
    seconds = np.bincount(graph.device[computes], weights=graph.seconds[computes], minlength=devices)
    return seconds.astype(np.float64)


def _communication(graph: TaskGraph, devices: int) -> Communication:
    crossing = crossing_bytes(graph)
    totals = {phase: float(ordered_sum(crossing[kind].tolist())) for phase, kind in PHASES.items()}
    source, target, size_bytes = traffic_pairs(graph, devices, PHASES.values())
    return Communication(
        total=ordered_sum(totals.values()),
        **totals,
        devices=devices,
        source=source,
        target=target,
        size_bytes=size_bytes,
    )
