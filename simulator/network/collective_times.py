"""Seconds of a collective that has its links for itself, as the library that runs it would choose.

    latency + bytes / bandwidth      the least over algorithms and their two protocols

A collective of S bytes over n devices on H hosts, at least k on each, that sends over links of B inside hosts and of C
between them; a host's w network cards serve its members, so rings use at most k of them on every host, an all-to-all as
many on each as it has members there, and where wires join the devices of a host one by one, m members have m - 1:

    algorithm   of               steps inside       steps between     bytes
    ring        sums, gathers    h (n - H)          h (H - 1)         h (n-1)/n S at the narrower of B and C
    tree        all-reduce       2 (K - 1)          2 ceil(log2 H)    2 S / B and, at once, t S / C
    switch      all-reduce       2                  2 ceil(log2 H)    S / (B x switch_share) and, at once, t S / C
    direct      all-to-all       1                  1                 (n-1)/n S/n, those between hosts at C
    by host     tokens, once     1                  1                 the same inside and, at once, d of it at C

with h = 2 for an all-reduce and 1 for a gather or a scatter, K the most members of a host, and t = 2, or 1 between two
hosts (see `CollectiveLibrary.two_hosts_once`), and d what is left where a token crosses once to each host (see
`Routing.host_share`), which hands it on to its experts' devices: DeepEP's dispatch. What stays on its device is copied.
Short messages go by a protocol of short steps and a share of the bandwidth, long ones by one that fills its buffers
first: NCCL's LL and LL128, and Simple, of which its tuner takes the fastest by such sums (NCCL, src/graph/tuning.cc).

A ring has h (n - 1) rounds over every connection, of which few are on their way at once: the next waits for a step back
that says that its slot is free. So between hosts each round takes its bytes b, or, where that is longer,

    (a step there + b + a step back) / rounds in flight

and small parts on many devices wait for latency, beside which bytes go, as the gathers of tensor groups across nodes
do.

The bytes become work on the links of the ring, shared with whatever else goes on; the latency is not. Measured curves
stand for devices that fill hosts as they did; they correct others by how far the sum above misses them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, inf, log

from simulator.cluster import Cluster
from simulator.collective_library import CollectiveLibrary
from simulator.curve import Curve
from simulator.expert_routing import Routing
from simulator.ordered_sum import ordered_sum
from simulator.taskgraph import Route

HALVES = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}
"""Of collectives in a ring: how often a byte goes round."""
LONG_IN_FLIGHT, SHORT_IN_FLIGHT = 2, 8
"""Rounds of a ring on their way over a connection: NCCL's has eight slots, of which a round of Simple takes four and
one of LL one (NCCL, src/include/collectives.h)."""


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """What a collective takes alone: `delay_s`, then `work` bytes at the rate of its ring.

    latency_s: what it would take without bytes, at least `delay_s`: rounds wait for each other while bytes go.
    """

    delay_s: float
    work: float
    rate_bytes_per_s: float
    latency_s: float

    @property
    def seconds(self) -> float:
        return self.delay_s + self.work / self.rate_bytes_per_s

    def at_rate(self, rate_bytes_per_s: float) -> CollectiveTime:
        """The same seconds as work at another rate."""
        if rate_bytes_per_s == self.rate_bytes_per_s:
            return self
        work = self.work * rate_bytes_per_s / self.rate_bytes_per_s
        return replace(self, work=work, rate_bytes_per_s=rate_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a group's devices are, and what its ring gets of the links.

    most: members of a host. inside, between: of the ring's pairs on one host and on two, the longest latency
    and the least bandwidth, with what their other pairs take of it and the cards that they have; (0, inf) where there
    is no such pair. cards: of the latter what the cards alone allow. full: every host but one has all its workers here.
    """

    devices: int
    hosts: int
    most: int
    inside_s: float
    inside_bytes_per_s: float
    between_s: float
    between_bytes_per_s: float
    cards_bytes_per_s: float
    full: bool

    @property
    def rate_bytes_per_s(self) -> float:
        return min(self.inside_bytes_per_s, self.between_bytes_per_s)

    def by_host(self, share: float) -> Placement:
        """Of an all-to-all of which `share` crosses between hosts; inside, all of it moves, as it does anyway."""
        between, cards = self.between_bytes_per_s / share, self.cards_bytes_per_s / share
        return replace(self, between_bytes_per_s=between, cards_bytes_per_s=cards) if share != 1 else self


def collective_s(cluster: Cluster, name: str, group: tuple[int, ...], size_bytes: float) -> float:
    """Seconds of a collective of `size_bytes`, alone; 0 where neither library nor curves say."""
    time = _kept_time(cluster, name, group, size_bytes)
    return time.seconds if time else 0.0


def time_of(cluster: Cluster, route: Route, sent_bytes: float) -> CollectiveTime | None:
    """Of a transfer that is a collective, `sent_bytes` of it over each pair; None where nothing but links says."""
    group = members(route)
    size_bytes = sent_bytes / sent_share(route.collective, len(group))
    return _kept_time(cluster, route.collective, group, size_bytes, route.routing)


def sent_share(name: str, devices: int) -> float:
    """Of a tensor, what a collective sends over each pair of its route."""
    if name == "all-to-all":
        return 1 / devices**2
    return HALVES[name] * (devices - 1) / devices if name in HALVES else 1.0


def members(route: Route) -> tuple[int, ...]:
    """The devices of a collective's first group; of several in one route, at one pace, each has a ring of its own."""
    if route.collective == "all-to-all":
        return tuple(sorted({source for source, _ in route.single}))
    devices = route.rounds // HALVES.get(route.collective, 1) + 1
    return tuple(sorted({device for pair in route.single[:devices] for device in pair}))


def placement(cluster: Cluster, group: tuple[int, ...], name: str = "all-reduce") -> Placement:
    """Where a group is; kept with the cluster."""
    return cluster.kept.get((placement, group, name == "all-to-all"), lambda: _placement(cluster, group, name))


def _placement(cluster: Cluster, group: tuple[int, ...], name: str) -> Placement:
    if name == "all-to-all":
        pairs = tuple((a, b) for a in group for b in group if a != b)
    else:
        pairs = tuple(zip(group, group[1:] + group[:1], strict=True))
    of_host = Counter(cluster.devices[device].host for device in group)
    counts = sorted(of_host.values(), reverse=True)
    crossed, hosts = cluster.link_weights(pairs), [device.host for device in cluster.devices]
    ends: dict[int, tuple[set[int], set[int]]] = {number: (set(), set()) for number in crossed}
    for pair in pairs:
        for number in cluster.route(*pair):
            for end, device in zip(ends[number], pair, strict=True):
                end.add(device)
    latency_s, rate, cards_rate = {True: 0.0, False: 0.0}, {True: inf, False: inf}, inf
    for source, target in pairs:
        inside = hosts[source] == hosts[target]
        numbers = cluster.route(source, target)
        for number in numbers:
            link, weight = cluster.links[number], crossed[number]
            senders = max(counts[-1], min(map(len, ends[number])))
            cards = min(1.0, (of_host[hosts[source]] - 1 if inside else senders) / link.wires)
            rate[inside] = min(rate[inside], link.bandwidth_bytes_per_s * cards / weight)
            if cards < 1:
                cards_rate = min(cards_rate, link.bandwidth_bytes_per_s * cards / weight)
        latency_s[inside] = max(latency_s[inside], ordered_sum(cluster.links[number].latency_s for number in numbers))
    return Placement(
        devices=len(group),
        hosts=len(counts),
        most=counts[0],
        inside_s=latency_s[True],
        inside_bytes_per_s=rate[True],
        between_s=latency_s[False],
        between_bytes_per_s=rate[False],
        cards_bytes_per_s=cards_rate,
        full=all(number == cluster.devices_per_host for number in counts[:-1]),
    )


def _kept_time(
    cluster: Cluster, name: str, group: tuple[int, ...], size_bytes: float, routing: Routing | None = None
) -> CollectiveTime | None:
    """Equal placements take equal times, whichever devices they are."""
    if not cluster.times_collectives or len(group) < 2:
        return None
    at = placement(cluster, group, name)
    once = at.by_host(routing.host_share(at.hosts, at.devices)) if routing and at.hosts > 1 else at
    time = cluster.kept.get((_kept_time, name, once, size_bytes), lambda: _time(cluster, name, once, size_bytes))
    return time.at_rate(at.rate_bytes_per_s) if time else None


def _time(cluster: Cluster, name: str, at: Placement, size_bytes: float) -> CollectiveTime | None:
    alone = _by_library(cluster.library, name, at, size_bytes) if cluster.library else _by_formula(name, at, size_bytes)
    ratio = _measured_ratio(cluster, name, at, size_bytes)
    if ratio is None:
        return alone if cluster.library else None
    seconds, sent_bytes = ratio * alone.seconds, sent_share(name, at.devices) * size_bytes
    work = min(sent_bytes, seconds * at.rate_bytes_per_s)
    delay_s = seconds - work / at.rate_bytes_per_s
    return CollectiveTime(delay_s, work, at.rate_bytes_per_s, max(delay_s, ratio * alone.latency_s))


def _by_formula(name: str, at: Placement, size_bytes: float) -> CollectiveTime:
    """A ring, each of whose rounds waits for its slowest pair; every pair at once for an all-to-all."""
    steps = 1 if name == "all-to-all" else HALVES.get(name, 1) * (at.devices - 1)
    latency_s = steps * max(at.inside_s, at.between_s)
    return CollectiveTime(latency_s, sent_share(name, at.devices) * size_bytes, at.rate_bytes_per_s, latency_s)


def _by_library(library: CollectiveLibrary, name: str, at: Placement, size_bytes: float) -> CollectiveTime:
    """The fastest of the algorithms, by either protocol."""
    fastest = (inf, 0.0, 0.0, 0.0)
    long_s = at.between_s * library.step_ratio
    for inside, between, rounds, bytes_s, fill_s in _algorithms(library, name, at, size_bytes):
        steps_s = library.launch_s + inside * at.inside_s
        share = library.short_share if at.hosts == 1 else min(library.short_share, library.short_between)
        short = steps_s, at.between_s, bytes_s / share, SHORT_IN_FLIGHT
        long = steps_s + fill_s, long_s, bytes_s, LONG_IN_FLIGHT
        for ends_s, step_s, moving_s, in_flight in (short, long) if fill_s == library.fill_s else (long,):
            slots_s = rounds * 2 * step_s / in_flight
            latency_s = ends_s + max(between * step_s, slots_s)
            delay_s = ends_s + max(between * step_s, slots_s - moving_s * (1 - 1 / in_flight))
            fastest = min(fastest, (delay_s + moving_s, delay_s, moving_s, latency_s))
    _, delay_s, moving_s, latency_s = fastest
    return CollectiveTime(delay_s, moving_s * at.rate_bytes_per_s, at.rate_bytes_per_s, latency_s)


def _algorithms(
    library: CollectiveLibrary, name: str, at: Placement, size_bytes: float
) -> Iterator[tuple[int, int, int, float, float]]:
    """(steps inside, steps between, rounds over a connection, seconds of the bytes, of filling buffers) of each."""
    sent_s = sent_share(name, at.devices) * size_bytes / at.rate_bytes_per_s
    if name == "all-to-all":
        own_s = size_bytes / at.devices**2 / library.copy_bytes_per_s
        yield at.inside_s > 0, at.hosts > 1, 0, sent_s + own_s, library.fill_s
        return
    halves, hosts = HALVES.get(name, 1), at.hosts if at.hosts > 1 else 0
    own_s = size_bytes / at.devices / library.copy_bytes_per_s if name in ("all-gather", "reduce-scatter") else 0.0
    between = halves * max(hosts - 1, 0)
    rounds = halves * (at.devices - 1)
    yield rounds - between, between, rounds, sent_s + own_s, library.fill_s
    if name != "all-reduce":
        return
    levels = 2 * (at.hosts - 1).bit_length()
    outside_s = (1 if at.hosts == 2 and library.two_hosts_once else 2) * size_bytes / at.between_bytes_per_s
    if at.hosts > 1:
        yield 2 * (at.most - 1), levels, 0, max(2 * size_bytes / at.inside_bytes_per_s, outside_s), library.fill_s
    if library.switch_share and at.most > 2:
        switch_s = size_bytes / (at.inside_bytes_per_s * library.switch_share)
        yield 2, levels, 0, max(switch_s, outside_s if at.hosts > 1 else 0.0), library.switch_fill_s


def _measured_ratio(cluster: Cluster, name: str, at: Placement, size_bytes: float) -> float | None:
    """Measured over expected seconds, of devices that fill hosts, at this number of devices or between its neighbours.

    Groups inside a host learn from those inside one, others from others. None where nothing like it was measured.
    """
    measured = "all_reduce" if name == "broadcast" else name.replace("-", "_")
    curves = {
        count: curve
        for count, curve in cluster.collectives.get(measured, {}).items()
        if (count > cluster.devices_per_host) == (at.hosts > 1) and count <= cluster.workers
    }
    if not curves:
        return None
    counts = sorted(curves)
    alike = at.devices if at.full else at.hosts * min(at.most, cluster.devices_per_host)
    above = min(bisect_left(counts, alike), len(counts) - 1)
    below = above if counts[above] <= alike else max(above - 1, 0)
    low, high = (
        log(_ratio(cluster, name, count, curves[count], size_bytes)) for count in (counts[below], counts[above])
    )
    if counts[below] == counts[above]:
        return exp(low)
    share = log(alike / counts[below]) / log(counts[above] / counts[below])
    return exp(low + (high - low) * min(max(share, 0.0), 1.0))


def _ratio(cluster: Cluster, name: str, count: int, curve: Curve, size_bytes: float) -> float:
    at = placement(cluster, tuple(range(count)), name)
    by = _by_library(cluster.library, name, at, size_bytes) if cluster.library else _by_formula(name, at, size_bytes)
    return curve.seconds(size_bytes) / by.seconds
