"""Whether links are shared equally by what the simulated devices send and by what those like them do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.symmetry.symmetry import Symmetry
from simulator.network.transfers import paths
from simulator.taskgraph import Floats, Kind, Route, TaskGraph

_UNITS_BYTES = (1024.0, 1.0, 2.0**-10)
"""Sums of multiples of one of these are exact up to 2^52 times it."""


def fits(graph: TaskGraph, cluster: Cluster, symmetry: Symmetry) -> bool:
    """Whether the joint transfers of a graph take and carry what those of all replicas and ranks would.

    Each copy's links are as fast, and as much used by the same transfers; and bytes add up without rounding, so that
    their order does not matter: those of transfers inside replicas, which come before others', and where several groups
    are counted that sum gradients, or gather parameters, those of all. Of groups that sum gradients together, the
    update, or a gather after it, and not one of the sums, ends last.
    """
    copies = np.array([route.copies for route in graph.routes] + [1])[graph.route]
    if (copies == 1).all():
        return True
    sums, updates = graph.kind == Kind.SYNCHRONISATION, graph.kind == Kind.UPDATE
    taken_s = graph.seconds + graph.launch_s if graph.is_launched else graph.seconds
    if (sums & (copies > 1)).any() and (taken_s[updates] == 0).any():
        return False
    of_replicas = sums | (graph.kind == Kind.PARAMETERS)
    several = len(symmetry.ranks) > 1 or bool((of_replicas & (copies > 1)).any())
    counted = graph.is_transfer & (~of_replicas | several)
    pairs = np.array([len(route.pairs) for route in graph.routes])[graph.route[counted]]
    size_bytes, total = graph.bytes[counted], graph.bytes[counted] @ pairs
    if not any(total <= 2**52 * unit and _are_multiples(size_bytes, unit) for unit in _UNITS_BYTES):
        return False
    alike = _kinds_of_links(graph, cluster)
    return all(_has_equal_ways(route, alike, cluster) for route in graph.routes if route.copies > 1)


def _kinds_of_links(graph: TaskGraph, cluster: Cluster) -> list[object]:
    """By link its kind: as fast, and as often used by the same routes."""
    users = paths(graph.routes, cluster, graph.kept).users.tolist()
    return [(link.speed, number) for link, number in zip(cluster.links, users, strict=True)]


def _are_multiples(size_bytes: Floats, unit_bytes: float) -> bool:
    """Whether these are whole multiples of a power of two, by which division is exact."""
    times = size_bytes / unit_bytes
    return bool((times == np.floor(times)).all())


def _has_equal_ways(route: Route, alike: Sequence[object], cluster: Cluster) -> bool:
    """Whether each copy of a route crosses links like those of the first, in its order; alike: by link."""
    ways = [[alike[link] for link in cluster.route(*pair)] for pair in route.pairs]
    return ways == ways[: len(route.single)] * route.copies
