"""What each transfer of a graph asks of the links: a delay, then work shared max-min fairly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

import numpy as np

from simulator.cluster import Cluster
from simulator.network.max_min import ActivityClass
from simulator.runtime import Runtime
from simulator.taskgraph import Floats, Route, TaskGraph


@dataclass(frozen=True, slots=True)
class Transfer:
    """`delay_s` alone (kind None), or `delay_s` and then `work` as an activity of class `kind`."""

    delay_s: float
    work: float
    kind: ActivityClass | None


@dataclass(frozen=True, slots=True)
class _Path:
    """A route laid over the cluster's links."""

    route: Route
    kind: ActivityClass
    delay_s: float
    rate: float
    measured: bool


def transfers(graph: TaskGraph, cluster: Cluster) -> list[Transfer | None]:
    """For every task its Transfer, None for compute."""
    paths = [_path(route, cluster) for route in graph.routes]
    found: list[Transfer | None] = [None] * len(graph)
    routes, seconds, sizes = graph.route.tolist(), graph.seconds.tolist(), graph.bytes.tolist()
    for task in graph.is_transfer.nonzero()[0].tolist():
        found[task] = _transfer(paths[routes[task]], seconds[task], sizes[task], cluster)
    return found


def uncontended_s(graph: TaskGraph, cluster: Cluster) -> list[float]:
    """Seconds of every task on an otherwise empty cluster (compute: its duration)."""
    found: list[float] = graph.seconds.tolist()
    for task, transfer in enumerate(transfers(graph, cluster)):
        if transfer is not None:
            rate = inf if transfer.kind is None else _alone(transfer.kind, cluster)
            found[task] = transfer.delay_s + transfer.work / rate
    return found


def core_seconds(graph: TaskGraph, cluster: Cluster, runtime: Runtime) -> list[dict[int, float]]:
    """For every route, the core seconds that a byte of its transfers costs each device; none where they are free."""
    found: list[dict[int, float]] = []
    for route in graph.routes:
        costs: dict[int, float] = {}
        for pair in route.pairs:
            for device, cost in zip(pair, (runtime.send_cpu_s_per_byte, runtime.receive_cpu_s_per_byte), strict=True):
                if cost and cluster.devices[device].host in cluster.host_cores:
                    costs[device] = costs.get(device, 0.0) + cost
        found.append(costs)
    return found


def link_weights(route: Route, cluster: Cluster) -> dict[int, float]:
    """How many of a route's pairs cross each link, by link index."""
    crossed = Counter(link for pair in route.pairs for link in cluster.route(*pair))
    return {link: float(times) for link, times in sorted(crossed.items())}


def link_bytes(graph: TaskGraph, cluster: Cluster) -> Floats:
    """Bytes that the step puts on each link."""
    carried = np.zeros(len(cluster.links))
    mine = graph.is_transfer
    per_route = np.bincount(graph.route[mine], weights=graph.bytes[mine], minlength=len(graph.routes))
    for size, route in zip(per_route, graph.routes, strict=True):
        for link, weight in link_weights(route, cluster).items():
            carried[link] += size * weight
    return carried


def _path(route: Route, cluster: Cluster) -> _Path:
    weights = link_weights(route, cluster)
    kind = ActivityClass(weights)
    delay_s = route.rounds * max((cluster.latency_s(*pair) for pair in route.pairs), default=0.0)
    measured = any(cluster.links[link].curve for link in weights)
    return _Path(route, kind, delay_s, _alone(kind, cluster), measured)


def _alone(kind: ActivityClass, cluster: Cluster) -> float:
    return min(
        (cluster.links[link].bandwidth_bytes_per_s / weight for link, weight in kind.weights.items()), default=inf
    )


def _transfer(path: _Path, seconds: float, size_bytes: float, cluster: Cluster) -> Transfer:
    """A measured duration stands as it is; a measured curve becomes the work that takes as long when alone."""
    if seconds > 0 or not path.kind.weights:
        return Transfer(seconds, 0.0, None)
    if path.measured:
        rounds = path.route.rounds
        alone_s = rounds * max(cluster.transfer_s(*pair, size_bytes / rounds) for pair in path.route.pairs)
        return Transfer(0.0, alone_s * path.rate, path.kind)
    return Transfer(path.delay_s, size_bytes, path.kind)
