"""Two-level all-reduce: inside each host, between hosts, inside again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from simulator.cluster import Cluster
from simulator.collectives._collective import AllReduce, CollectiveTask
from simulator.collectives.ring import around, ring
from simulator.taskgraph import Route

Hosts = list[tuple[int, ...]]


def two_levels(cluster: Cluster, group: Sequence[int], size_bytes: float, between: AllReduce) -> list[CollectiveTask]:
    """An all-reduce of `size_bytes` over `group` whose part between the hosts is `between`; see `hierarchical`."""
    hosts: dict[str, tuple[int, ...]] = {}
    for device in group:
        name = cluster.devices[device].host
        hosts[name] = (*hosts.get(name, ()), device)
    homes = list(hosts.values())
    if len(homes) in (1, len(group)):
        return (ring if len(homes) == 1 else between)(cluster, group, size_bytes)
    alike = len({len(members) for members in homes}) == 1
    return (_sharded if alike else _led)(cluster, homes, size_bytes, between)


def _sharded(cluster: Cluster, homes: Hosts, size_bytes: float, between: AllReduce) -> list[CollectiveTask]:
    """Every device stands for its host with 1/g of the bytes."""
    g = len(homes[0])
    inside = [(Route(around(members), rounds=g - 1), (g - 1) / g * size_bytes) for members in homes]
    columns = [between(cluster, column, size_bytes / g)[0] for column in zip(*homes, strict=True)]
    return _joined(homes, inside, _together(columns), inside)


def _led(cluster: Cluster, homes: Hosts, size_bytes: float, between: AllReduce) -> list[CollectiveTask]:
    """The first device of each host stands for it."""
    up = [(Route(tuple((b, a) for a, b in pairwise(m)), rounds=len(m) - 1), size_bytes) for m in homes]
    down = [(Route(tuple(pairwise(m)), rounds=len(m) - 1), size_bytes) for m in homes]
    return _joined(homes, up, between(cluster, [m[0] for m in homes], size_bytes)[0], down)


def _together(tasks: Sequence[CollectiveTask]) -> CollectiveTask:
    """Tasks of one kind on disjoint devices as one, all at one pace."""
    routes = [task.route for task in tasks if task.route]
    return replace(tasks[0], route=Route(tuple(p for route in routes for p in route.pairs), rounds=routes[0].rounds))


def _joined(
    homes: Hosts, up: list[tuple[Route, float]], between: CollectiveTask, down: list[tuple[Route, float]]
) -> list[CollectiveTask]:
    """In every host `up`, then `between` them, then `down`."""
    n = len(homes)
    tasks = [
        CollectiveTask(route=route, bytes=size, needs=members) for (route, size), members in zip(up, homes, strict=True)
    ]
    tasks.append(replace(between, after=tuple(range(n)), needs=(), delivers=()))
    return tasks + [
        CollectiveTask(route=route, bytes=size, after=(n,), delivers=members)
        for (route, size), members in zip(down, homes, strict=True)
    ]
