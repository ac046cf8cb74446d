"""What each transfer of a graph asks of the links: a delay, then work shared max-min fairly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.kept import Kept
from simulator.network.collective_times import members, placement, time_of
from simulator.taskgraph import Floats, Ints, Route, TaskGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Routes laid over a cluster's links; route r crosses link[start[r] : start[r + 1]], each `weight` times.

    load: as the weight, of a message by how much more of its wires' bandwidth collectives get than it does. delay_s:
    latency of all rounds. cap_bytes_per_s: what its wires allow a message, or a collective of few members of a host.
    rate_bytes_per_s: of an uncontended transfer, infinite where no link is crossed. They are of one copy. measured: a
    link of the route carries a curve. together: it is a collective's. users: the same number for links that the same
    routes use equally often.
    """

    start: Ints  # [routes + 1]
    link: Ints
    weight: Floats
    load: Floats
    delay_s: Floats  # [routes]
    cap_bytes_per_s: Floats  # [routes]
    rate_bytes_per_s: Floats  # [routes]
    measured: npt.NDArray[np.bool_]  # [routes]
    together: npt.NDArray[np.bool_]  # [routes]
    users: Ints  # [links]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What every task asks of the links: `delay_s` alone, or, where it contends, `delay_s` and then `work` bytes.

    A compute task's delay is its duration.
    """

    delay_s: Floats  # [tasks]
    work: Floats  # [tasks]
    contends: npt.NDArray[np.bool_]  # [tasks]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeeds:
    """By link of a cluster, shape (links,); message_bytes_per_s: of a message alone, and message_load: how much of a
    wire's bandwidth it takes for a byte. curved: whether it carries a measured curve."""

    latency_s: Floats
    bandwidth_bytes_per_s: Floats
    message_bytes_per_s: Floats
    message_load: Floats
    curved: npt.NDArray[np.bool_]


def link_speeds(cluster: Cluster) -> LinkSpeeds:
    """How fast the links are; kept with the cluster."""
    return cluster.kept.get(link_speeds, lambda: _link_speeds(cluster))


def _link_speeds(cluster: Cluster) -> LinkSpeeds:
    bandwidth = np.array([link.bandwidth_bytes_per_s for link in cluster.links], dtype=np.float64)
    message = np.array([link.of_message_bytes_per_s for link in cluster.links], dtype=np.float64)
    wires = np.array([link.wires for link in cluster.links], dtype=np.float64)
    return LinkSpeeds(
        latency_s=np.array([link.latency_s for link in cluster.links], dtype=np.float64),
        bandwidth_bytes_per_s=bandwidth,
        message_bytes_per_s=message,
        message_load=bandwidth / wires / message,
        curved=np.array([link.curve is not None for link in cluster.links], dtype=np.bool_),
    )


def paths(routes: Sequence[Route], cluster: Cluster, kept: Kept | None = None) -> Paths:
    """The links, latency and bandwidth of every route.

    kept: of what has these routes and no others; a step's simulation and its report ask for the same.
    """

    def ways() -> _Ways:
        return cluster.ways.get((_ways_of, tuple(routes)), lambda: _ways_of(routes, cluster))

    if kept is None:
        return _paths(routes, ways(), cluster)
    return kept.latest(paths, cluster, lambda: _paths(routes, kept.latest(_ways_of, cluster.ways, ways), cluster))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """Routes laid over links, however fast these are. Of what is crossed: by which route or pair, over which link.

    start, link, weight: as in Paths; crossing: the route of each. alone, alone_link, alone_weight: the route, link and
    weight of one copy. hop, hop_link: of every pair of one copy, numbered through all routes; pair: the route of each.
    rounds: of every route. message: whether it is one, and together: whether it is a collective's, by route. users: as
    in Paths.
    """

    start: Ints
    link: Ints
    weight: Floats
    crossing: Ints
    alone: Ints
    alone_link: Ints
    alone_weight: Floats
    hop: Ints
    hop_link: Ints
    pair: Ints
    rounds: Ints
    message: npt.NDArray[np.bool_]
    together: npt.NDArray[np.bool_]
    users: Ints


def _ways_of(routes: Sequence[Route], cluster: Cluster) -> _Ways:
    crossed = [link_weights(route, cluster) for route in routes]
    alone = [cluster.link_weights(route.single) for route in routes]
    hops = [cluster.route(*pair) for route in routes for pair in route.single]
    start = np.cumsum([0, *map(len, crossed)])
    return _Ways(
        start=start,
        link=np.array([link for weights in crossed for link in weights], dtype=np.int64),
        weight=np.array([weight for weights in crossed for weight in weights.values()], dtype=np.float64),
        crossing=np.repeat(np.arange(len(routes)), np.diff(start)),
        alone=np.repeat(np.arange(len(routes)), [len(weights) for weights in alone]),
        alone_link=np.array([link for weights in alone for link in weights], dtype=np.int64),
        alone_weight=np.array([weight for weights in alone for weight in weights.values()], dtype=np.float64),
        hop=np.repeat(np.arange(len(hops)), [len(links) for links in hops]),
        hop_link=np.array([link for links in hops for link in links], dtype=np.int64),
        pair=np.repeat(np.arange(len(routes)), [len(route.single) for route in routes]),
        rounds=np.array([route.latencies for route in routes], dtype=np.int64),
        message=np.array([len(route.single) == 1 and not route.collective for route in routes], dtype=np.bool_),
        together=np.array([bool(route.collective) for route in routes], dtype=np.bool_),
        users=_users(crossed, len(cluster.links)),
    )


def _users(crossed: Sequence[Mapping[int, float]], links: int) -> Ints:
    """The number of each link's set of users, in order of its first; 0 for none. crossed: by route, times by link."""
    users: list[list[tuple[int, float]]] = [[] for _ in range(links)]
    for route, weights in enumerate(crossed):
        for link, times in weights.items():
            users[link].append((route, times))
    numbers: dict[tuple[tuple[int, float], ...], int] = {(): 0}
    return np.array([numbers.setdefault(tuple(each), len(numbers)) for each in users], dtype=np.int64)


def _paths(routes: Sequence[Route], ways: _Ways, cluster: Cluster) -> Paths:
    speeds = link_speeds(cluster)
    # added up hop by hop, as `Cluster.latency_s` does
    of_pair = np.bincount(ways.hop, weights=speeds.latency_s[ways.hop_link], minlength=len(ways.pair))
    longest, narrowest, cap = np.zeros(len(ways.rounds)), *np.full((2, len(ways.rounds)), inf)
    np.maximum.at(longest, ways.pair, of_pair)
    np.minimum.at(narrowest, ways.alone, speeds.bandwidth_bytes_per_s[ways.alone_link] / ways.alone_weight)
    load = ways.weight
    if not cluster.is_formula:
        np.minimum.at(cap, ways.alone, speeds.message_bytes_per_s[ways.alone_link])
        cap[~ways.message] = inf
        load = np.where(ways.message[ways.crossing], load * speeds.message_load[ways.link], load)
        for number in np.flatnonzero(ways.together).tolist():
            group = members(routes[number])
            if len(group) > 1:
                cap[number] = placement(cluster, group, routes[number].collective).cards_bytes_per_s
    narrowest = np.where(ways.message & np.isfinite(cap), cap, np.minimum(narrowest, cap))
    return Paths(
        start=ways.start,
        link=ways.link,
        weight=ways.weight,
        load=load,
        delay_s=ways.rounds * longest,
        cap_bytes_per_s=cap,
        rate_bytes_per_s=narrowest,
        measured=np.bincount(ways.crossing[speeds.curved[ways.link]], minlength=len(ways.rounds)) > 0,
        together=ways.together,
        users=ways.users,
    )


def demand(graph: TaskGraph, cluster: Cluster, over: Paths) -> Demand:
    """A measured duration stands as it is; a measured curve becomes the work that takes as long when alone.

    The latest is kept with the graph, as a step's report asks for what its simulation did.
    """
    return graph.kept.latest(demand, over, lambda: _demand(graph, cluster, over))


def _demand(graph: TaskGraph, cluster: Cluster, over: Paths) -> Demand:
    route = graph.route
    if not len(graph.routes):
        none = np.zeros(len(graph))
        return Demand(delay_s=graph.seconds, work=none, contends=none > 0)
    joined = np.append(np.diff(over.start) > 0, False)[route]  # [tasks]; a compute task's route is -1, the last entry
    contends = joined & ~(graph.seconds > 0)
    delay_s = np.where(contends, np.append(over.delay_s, 0.0)[route], graph.seconds)
    work = np.where(contends, graph.bytes, 0.0)
    if cluster.times_collectives:
        _ask_library(graph, cluster, contends & np.append(over.together, False)[route], delay_s, work)
    if over.measured.any():
        timed = cluster.times_collectives & np.append(over.together, False)
        curved = np.flatnonzero(contends & (np.append(over.measured, False) & ~timed)[route])
        sizes, which = np.unique(np.stack([route[curved], graph.bytes[curved]]), axis=1, return_inverse=True)
        seconds = [_curve_s(graph.routes[int(r)], size, cluster) for r, size in sizes.T.tolist()]
        work[curved] = np.array(seconds)[which.ravel()] * over.rate_bytes_per_s[route[curved]]
        delay_s[curved] = 0.0
    return Demand(delay_s=delay_s, work=work, contends=contends)


def _ask_library(
    graph: TaskGraph, cluster: Cluster, together: npt.NDArray[np.bool_], delay_s: Floats, work: Floats
) -> None:
    """Let collectives take what the cluster's library or curves say, each size over each route asked for once."""
    tasks = np.flatnonzero(together)
    tasks = tasks[np.lexsort((graph.bytes[tasks], graph.route[tasks]))]
    new = np.flatnonzero(np.diff(graph.route[tasks], prepend=-1) | (np.diff(graph.bytes[tasks], prepend=-1.0) != 0))
    for first, end in pairwise([*new.tolist(), len(tasks)]):
        task = tasks[first]
        time = time_of(cluster, graph.routes[graph.route[task]], float(graph.bytes[task]))
        if time is not None:
            delay_s[tasks[first:end]], work[tasks[first:end]] = time.delay_s, time.work


def alone_s(graph: TaskGraph, over: Paths, asked: Demand) -> Floats:
    """Seconds of every task on an otherwise empty cluster (compute: its duration)."""
    rate: Floats = np.append(over.rate_bytes_per_s, inf)[graph.route]
    return asked.delay_s + asked.work / rate


def uncontended_s(graph: TaskGraph, cluster: Cluster) -> Floats:
    """`alone_s` of a graph on a cluster."""
    over = paths(graph.routes, cluster, graph.kept)
    return alone_s(graph, over, demand(graph, cluster, over))


def link_weights(route: Route, cluster: Cluster) -> Mapping[int, float]:
    """How many of a route's pairs cross each link, by link index; of all copies."""
    return cluster.link_weights(route.pairs)


def link_bytes(graph: TaskGraph, cluster: Cluster) -> Floats:
    """Bytes that the step puts on each link."""
    over = paths(graph.routes, cluster, graph.kept)
    return _on_links(graph.route_bytes.sum(axis=0), over, over.weight, cluster)


def link_work(graph: TaskGraph, cluster: Cluster) -> Floats:
    """Bytes of its bandwidth that the step takes of each link, shape (links,): as many as `link_bytes`, but of messages
    as their load is."""
    over = paths(graph.routes, cluster, graph.kept)
    transfers = np.flatnonzero(graph.is_transfer)
    work = graph.counted_bytes[transfers] * shared_part(graph, cluster, over)[transfers]
    of_route = np.bincount(graph.route[transfers], weights=work, minlength=len(graph.routes)).astype(np.float64)
    return _on_links(of_route, over, over.load, cluster)


def shared_part(graph: TaskGraph, cluster: Cluster, over: Paths) -> Floats:
    """Of the bytes of every transfer the part that asks for its links' bandwidth: less than 1 where a switch sums."""
    asked = demand(graph, cluster, over)
    asks = asked.contends & (asked.work < graph.bytes)
    return np.divide(asked.work, graph.bytes, out=np.ones(len(graph)), where=asks)


def _on_links(sizes: Floats, over: Paths, times: Floats, cluster: Cluster) -> Floats:
    """What crosses each link, shape (links,), of `sizes` over each route; times: over each of its links."""
    crossing = np.repeat(sizes, np.diff(over.start)) * times
    return np.bincount(over.link, weights=crossing, minlength=len(cluster.links)).astype(np.float64)


def _curve_s(route: Route, size_bytes: float, cluster: Cluster) -> float:
    """Seconds of a transfer over measured links that has them for itself, beyond those of what goes ahead of it."""

    def slowest_s(sent_bytes: float) -> float:
        return route.rounds * max(cluster.transfer_s(*pair, sent_bytes / route.rounds) for pair in route.single)

    if route.ahead_bytes is None:
        return slowest_s(size_bytes)
    return slowest_s(route.ahead_bytes + size_bytes) - slowest_s(route.ahead_bytes)
