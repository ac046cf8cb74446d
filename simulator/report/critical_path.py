"""What a step waits for: its longest chain, by dependencies alone and as it really came to pass."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import binding_tasks, longest_chain_s
from simulator.network.transfers import link_bytes, link_speeds, uncontended_s
from simulator.report.time_spans import previous_of_owner
from simulator.taskgraph import Floats, Ints, TaskGraph
from simulator.timeline import Timeline


def critical_path_s(graph: TaskGraph, cluster: Cluster) -> float:
    """Seconds of the longest dependency chain if nothing ever waited for a device or shared a link."""
    return longest_chain_s(graph, uncontended_s(graph, cluster))


def binding_chain(graph: TaskGraph, timeline: Timeline) -> list[int]:
    """Tasks, first to last, each of which began when the one before ended; together they last the whole step.

    A task is preceded by the dependency that ended last, or, if it still had to wait for its device, by the
    task that the device ran before.
    """
    chain: list[int] = binding_tasks(graph, timeline, _previous_on_device(graph, timeline))[::-1].tolist()
    return chain


def _previous_on_device(graph: TaskGraph, timeline: Timeline) -> Ints:
    """For each compute task the last one of some length that its device ran before it, -1 for none and for transfers.

    A task that takes no time holds up no other.
    """
    compute = graph.kept(_previous_on_device, lambda: np.flatnonzero(~graph.is_transfer))
    before, device = np.full(len(graph), -1, dtype=np.int64), graph.device[compute]
    previous = previous_of_owner(timeline.start_s[compute], timeline.end_s[compute], device)
    before[compute] = np.where(previous >= 0, compute[previous], -1) if len(compute) else previous
    return before


def path_shares(
    graph: TaskGraph, cluster: Cluster, timeline: Timeline, carried: Floats | None = None
) -> dict[tuple[str, str], float]:
    """Seconds of the binding chain by resource: ("compute" or "server", device name) or (link tier, link name).

    A transfer counts for the link of its route that is used most in the whole step. carried: `link_bytes` of the graph,
    where they are known.
    """
    chain = binding_tasks(graph, timeline, _previous_on_device(graph, timeline))[::-1]
    spent_s = (timeline.end_s - timeline.start_s)[chain]
    route = graph.route[chain]
    used = np.where(route < 0, graph.device[chain], len(cluster.devices) + route)  # devices, then routes
    distinct = np.flatnonzero(np.bincount(used))
    carried = link_bytes(graph, cluster) if carried is None else carried
    used_s = carried / link_speeds(cluster).bandwidth_bytes_per_s
    resources = [_resource(number, graph, cluster, used_s) for number in distinct.tolist()]
    numbers = {resource: number for number, resource in enumerate(dict.fromkeys(resources))}
    resource_of = np.zeros(len(cluster.devices) + len(graph.routes), dtype=np.int64)
    resource_of[distinct] = [numbers[resource] for resource in resources]
    of_task = resource_of[used]
    first = np.zeros(len(numbers), dtype=np.int64)
    first[of_task[::-1]] = np.arange(len(chain))[::-1]  # of tasks of one resource the first is written last
    totals = np.bincount(of_task, weights=spent_s, minlength=len(numbers))
    rows = sorted(zip(first.tolist(), numbers, totals.tolist(), strict=True), key=lambda row: (-row[2], row[0]))
    return {resource: seconds for _, resource, seconds in rows}


def _resource(number: int, graph: TaskGraph, cluster: Cluster, used_s: Floats) -> tuple[str, str]:
    """What device `number`, or the route that follows the devices, is counted as."""
    if number < len(cluster.devices):
        device = cluster.devices[number]
        return ("compute" if device.role == "worker" else "server", device.name)
    crossed = cluster.link_weights(graph.routes[number - len(cluster.devices)].single)
    link = max(crossed, key=lambda number: float(used_s[number]), default=None)
    return ("local", "") if link is None else (cluster.links[link].tier, cluster.links[link].name)
