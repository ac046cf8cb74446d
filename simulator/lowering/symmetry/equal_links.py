"""Whether links are shared equally by what the simulated devices send and by what those like them do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.cluster import Cluster
from simulator.network.transfers import paths
from simulator.taskgraph import Kind, Route, TaskGraph


def fits(graph: TaskGraph, cluster: Cluster) -> bool:
    """Whether the joint transfers of a graph take and carry what those of all replicas and ranks would.

    Each copy's links are as fast, and as much used by the same transfers. Of groups that sum gradients together, the
    update, or a gather after it, and not one of the sums, ends last.
    """
    copies = np.array([route.copies for route in graph.routes] + [1])[graph.route]
    if (copies == 1).all():
        return True
    sums, updates = graph.kind == Kind.SYNCHRONISATION, graph.kind == Kind.UPDATE
    taken_s = graph.seconds + graph.launch_s if graph.is_launched else graph.seconds
    if (sums & (copies > 1)).any() and (taken_s[updates] == 0).any():
        return False
    alike = _kinds_of_links(graph, cluster)
    return all(_has_equal_ways(route, alike, cluster) for route in graph.routes if route.copies > 1)


def _kinds_of_links(graph: TaskGraph, cluster: Cluster) -> list[object]:
    """By link its kind: as fast, and as often used by the same routes."""
    users = paths(graph.routes, cluster, graph.kept).users.tolist()
    return [(link.speed, number) for link, number in zip(cluster.links, users, strict=True)]


def _has_equal_ways(route: Route, alike: Sequence[object], cluster: Cluster) -> bool:
    """Whether each copy of a route crosses links like those of the first, in its order; alike: by link."""
    ways = [[alike[link] for link in cluster.route(*pair)] for pair in route.pairs]
    return ways == ways[: len(route.single)] * route.copies
