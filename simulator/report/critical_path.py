"""What a step waits for: its longest chain, by dependencies alone and as it really came to pass."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import longest_chain_s
from simulator.network.transfers import link_bytes, uncontended_s
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline


def critical_path_s(graph: TaskGraph, cluster: Cluster) -> float:
    """Seconds of the longest dependency chain if nothing ever waited for a device or shared a link."""
    return longest_chain_s(graph, uncontended_s(graph, cluster))


def binding_chain(graph: TaskGraph, timeline: Timeline) -> list[int]:
    """Tasks, first to last, each of which began when the one before ended; together they last the whole step.

    A task is preceded by the dependency that ended last, or, if it still had to wait for its device, by the
    task that the device ran before.
    """
    if not len(graph):
        return []
    start, end = timeline.start_s, timeline.end_s
    before = _previous_on_device(graph, timeline)
    chain = [int(np.argmax(end))]
    while len(chain) <= len(graph):
        task = chain[-1]
        waited = graph.predecessors(task)
        last = int(waited[np.argmax(end[waited])]) if len(waited) else -1
        other = before[task]
        if other >= 0 and (last < 0 or end[other] > end[last]):
            last = other
        if last < 0 or start[task] <= 0:
            break
        chain.append(last)
    return chain[::-1]


def _previous_on_device(graph: TaskGraph, timeline: Timeline) -> list[int]:
    """For each compute task the last one of some length that its device ran before it, -1 for none and for transfers.

    A task that takes no time holds up no other.
    """
    before = np.full(len(graph), -1, dtype=np.int64)
    compute = np.flatnonzero(~graph.is_transfer)
    order = compute[np.lexsort((timeline.end_s[compute], timeline.start_s[compute], graph.device[compute]))]
    lasting = np.where(timeline.end_s[order] > timeline.start_s[order], np.arange(len(order)), -1)
    previous = np.maximum.accumulate(lasting)[:-1]
    same = (previous >= 0) & (graph.device[order[1:]] == graph.device[order[previous]])
    before[order[1:][same]] = order[previous[same]]
    previous_task: list[int] = before.tolist()
    return previous_task


def path_shares(graph: TaskGraph, cluster: Cluster, timeline: Timeline) -> dict[tuple[str, str], float]:
    """Seconds of the binding chain by resource: ("compute" or "server", device name) or (link tier, link name).

    A transfer counts for the link of its route that is used most in the whole step.
    """
    shares: dict[tuple[str, str], float] = {}
    busiest: dict[int, tuple[str, str]] = {}
    used_s = link_bytes(graph, cluster) / np.array([link.bandwidth_bytes_per_s for link in cluster.links])
    for task in binding_chain(graph, timeline):
        route = int(graph.route[task])
        if route < 0:
            device = cluster.devices[graph.device[task]]
            resource = ("compute" if device.role == "worker" else "server", device.name)
        else:
            if route not in busiest:
                crossed = cluster.link_weights(graph.routes[route].single)
                link = max(crossed, key=lambda number: used_s[number], default=None)
                busiest[route] = ("local", "") if link is None else (cluster.links[link].tier, cluster.links[link].name)
            resource = busiest[route]
        spent = float(timeline.end_s[task] - timeline.start_s[task])
        shares[resource] = shares.get(resource, 0.0) + spent
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
