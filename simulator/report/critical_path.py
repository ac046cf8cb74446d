"""What a step waits for: its longest chain, by dependencies alone and as it really came to pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import binding_tasks, longest_chain_s
from simulator.network.transfers import link_speeds, link_work, uncontended_s
from simulator.report.time_spans import previous_of_owner
from simulator.taskgraph import Floats, Ints, TaskGraph
from simulator.timeline import Timeline

LAUNCHES = "host launches"
"""What bounds a step while a task that its device has taken waits until its host has launched it."""


def critical_path_s(graph: TaskGraph, cluster: Cluster) -> float:
    """Seconds of the longest dependency chain if nothing ever waited for a device or shared a link.

    Of launches those count before which the host waits.
    """
    seconds = uncontended_s(graph, cluster)
    return longest_chain_s(graph, seconds + graph.launch_s * graph.host_waits if graph.is_launched else seconds)


def binding_chain(graph: TaskGraph, timeline: Timeline) -> list[int]:
    """Tasks, first to last, each of which was taken when the one before ended; together they last the whole step.

    A task is preceded by the dependency that ended last, or, if it still had to wait for its device, by the
    task that the device ran before.
    """
    chain: list[int] = _chain(graph, timeline, taken_s(graph, timeline)).tolist()
    return chain


def _chain(graph: TaskGraph, timeline: Timeline, taken: Floats) -> Ints:
    """The same; taken: `taken_s` of all tasks."""
    before = previous_on_device(graph, timeline)
    return binding_tasks(graph, replace(timeline, start_s=taken), before)[::-1]


def taken_s(graph: TaskGraph, timeline: Timeline) -> Floats:
    """When the device of each task took it: all that it waits for had ended, and the device's task before.

    A task that is launched late starts later than that; a transfer when it is taken.
    """
    if not graph.is_launched:
        return timeline.start_s
    before, waits = previous_on_device(graph, timeline), np.diff(graph.dependency_start) > 0
    ready_s = np.where(before >= 0, timeline.end_s[before], 0.0)
    last_s = np.maximum.reduceat(timeline.end_s[graph.dependencies], graph.dependency_start[:-1][waits])
    ready_s[waits] = np.maximum(ready_s[waits], last_s)
    return np.where(graph.is_transfer, timeline.start_s, np.minimum(ready_s, timeline.start_s))


def previous_on_device(graph: TaskGraph, timeline: Timeline) -> Ints:
    """For each compute task the last one of some length that its device ran before it, -1 for none and for transfers.

    A task that takes no time holds up no other.
    """
    compute = graph.kept.get(previous_on_device, lambda: np.flatnonzero(~graph.is_transfer))
    before, device = np.full(len(graph), -1, dtype=np.int64), graph.device[compute]
    previous = previous_of_owner(timeline.start_s[compute], timeline.end_s[compute], device)
    before[compute] = np.where(previous >= 0, compute[previous], -1) if len(compute) else previous
    return before


def path_shares(
    graph: TaskGraph, cluster: Cluster, timeline: Timeline, work: Floats | None = None
) -> dict[tuple[str, str], float]:
    """Seconds of the binding chain by resource: ("compute", "server" or LAUNCHES, device name) or (tier, link name).

    A transfer counts for the link of its route that is used most in the whole step, what a task waits until it is
    launched for its device's host. work: `link_work` of the graph, where it is known.
    """
    taken = taken_s(graph, timeline)
    chain = _chain(graph, timeline, taken)
    awaited_s, spent_s = (timeline.start_s - taken)[chain], (timeline.end_s - timeline.start_s)[chain]
    route, device, late = graph.route[chain], graph.device[chain], np.flatnonzero(awaited_s > 0)
    others = len(cluster.devices) + len(graph.routes)
    used = np.where(route < 0, device, len(cluster.devices) + route)  # devices, then routes, then hosts of devices
    used, spent_s = np.append(used, others + device[late]), np.append(spent_s, awaited_s[late])
    position = np.append(np.arange(len(chain)), late)
    distinct = np.flatnonzero(np.bincount(used))
    work = link_work(graph, cluster) if work is None else work
    used_s = work / link_speeds(cluster).bandwidth_bytes_per_s
    resources = [_resource(number, graph, cluster, used_s) for number in distinct.tolist()]
    numbers = {resource: number for number, resource in enumerate(dict.fromkeys(resources))}
    resource_of = np.zeros(others + len(cluster.devices), dtype=np.int64)
    resource_of[distinct] = [numbers[resource] for resource in resources]
    of_task = resource_of[used]
    first = np.zeros(len(numbers), dtype=np.int64)
    first[of_task[::-1]] = position[::-1]  # of tasks of one resource the first is written last
    totals = np.bincount(of_task, weights=spent_s, minlength=len(numbers))
    rows = sorted(zip(first.tolist(), numbers, totals.tolist(), strict=True), key=lambda row: (-row[2], row[0]))
    return {resource: seconds for _, resource, seconds in rows}


def _resource(number: int, graph: TaskGraph, cluster: Cluster, used_s: Floats) -> tuple[str, str]:
    """What device `number`, the route that follows the devices, or the host that follows the routes is counted as."""
    if number >= len(cluster.devices) + len(graph.routes):
        return LAUNCHES, cluster.devices[number - len(cluster.devices) - len(graph.routes)].name
    if number < len(cluster.devices):
        device = cluster.devices[number]
        return ("compute" if device.role == "worker" else "server", device.name)
    crossed = cluster.link_weights(graph.routes[number - len(cluster.devices)].single)
    link = max(crossed, key=lambda number: float(used_s[number]), default=None)
    return ("local", "") if link is None else (cluster.links[link].tier, cluster.links[link].name)
