"""Objectives of a search: the score of a plan, its lower bound before simulation, and that of any plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.ordered_sum import ordered_sum
from simulator.report.metrics import dollars_per_step
from simulator.sweep.bounds import compute_bound_s, dollars_bound, graph_bound_s, memory_bound_bytes
from simulator.taskgraph import Floats, TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile


@dataclass(frozen=True, slots=True)
class Objective:
    """column: of the score, with its unit. score: of a simulated plan, by (cluster, timeline, peak bytes by device).

    floor: no simulation of this graph has less. bound: no plan of (profile, cluster, batch size, optimizer state) has
    less. fewer_devices: whether a part of the cluster may be better than all of it.
    """

    column: str
    score: Callable[[Cluster, Timeline, Floats], float]
    floor: Callable[[TaskGraph, Cluster], float]
    bound: Callable[[Profile, Cluster, int, float], float]
    fewer_devices: bool = False


def _step_bound_s(profile: Profile, cluster: Cluster, batch_size: int, optimizer_state: float) -> float:
    return compute_bound_s(profile, cluster, batch_size)


def _memory_bound(profile: Profile, cluster: Cluster, batch_size: int, optimizer_state: float) -> float:
    return memory_bound_bytes(profile, cluster, optimizer_state)


def _dollars_bound(profile: Profile, cluster: Cluster, batch_size: int, optimizer_state: float) -> float:
    return dollars_bound(profile, cluster, batch_size)


def _dollars_floor(graph: TaskGraph, cluster: Cluster) -> float:
    return (
        graph_bound_s(graph, cluster) * ordered_sum(device.dollars_per_hour or 0.0 for device in cluster.devices) / 3600
    )


_STEP = Objective("step_s", lambda cluster, timeline, peaks: timeline.step_s, graph_bound_s, _step_bound_s)
OBJECTIVES: Mapping[str, Objective] = {
    "step": _STEP,
    "throughput": _STEP,  # the batch is given, so the shortest step is the highest throughput
    "cost": Objective(
        "dollars_per_step",
        lambda cluster, timeline, peaks: dollars_per_step(cluster, timeline.step_s) or 0.0,
        _dollars_floor,
        _dollars_bound,
        True,
    ),
    "memory": Objective(
        "peak_memory_bytes",
        lambda cluster, timeline, peaks: float(peaks.max()),
        lambda graph, cluster: float(graph.static_bytes.max()),
        _memory_bound,
    ),
}
