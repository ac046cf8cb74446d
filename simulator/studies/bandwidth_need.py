"""Which network plans need: the step of the best of several over the bandwidth of one tier of links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt

from simulator.cluster import Cluster

ENOUGH = 1.05
"""Of the step on links without limit: one that is no longer gains less than 5 % by more bandwidth."""
UNLIMITED = 1e4
"""Times the bandwidth: what is left of a transfer is its latency."""

StepSeconds = Callable[[str, Cluster], float]
"""Of a plan, by its name, on a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthPoint:
    """The best plan at one bandwidth."""

    factor: float
    """Of the bandwidth that the cluster has."""
    per_device_bytes_per_s: float
    """What collectives over the tier get for each device."""
    plan: str
    """Its name."""
    step_s: float


def per_device_bytes_per_s(cluster: Cluster, tier: str) -> float:
    """What the links of `tier` give one way for each device; those of a node share its links to others."""
    links = [link for link in cluster.links if link.tier == tier]
    hosts = len({device.host for device in cluster.devices})  # servers have links, too
    devices = cluster.workers if tier == "intra" else cluster.devices_per_host * hosts
    return max(link.bandwidth_bytes_per_s for link in links) * len(links) / 2 / devices


def _between_nodes(cluster: Cluster) -> set[str]:
    """The tiers that devices of one host do not share."""
    first: dict[str, int] = {}
    devices = enumerate(cluster.devices[: cluster.workers])
    routes = (cluster.route(first.setdefault(device.host, number), number) for number, device in devices)
    return {*cluster.tiers} - {cluster.links[link].tier for route in routes for link in route}


def nearest_between_nodes(cluster: Cluster) -> str | None:
    """The first tier that devices of one host do not share on the way to another host; None where there is none."""
    tiers = _between_nodes(cluster)
    ways = (cluster.route(0, number) for number in range(1, cluster.workers))
    return next((cluster.links[link].tier for way in ways for link in way if cluster.links[link].tier in tiers), None)


def scaled(cluster: Cluster, tier: str, factor: float) -> Cluster:
    """`cluster` with `factor` times the bandwidth of `tier` and of all that devices of one host do not share."""
    for each in sorted({tier} | _between_nodes(cluster)):
        cluster = cluster.with_links(each, lambda link: link.times(factor))
    return cluster


class BandwidthNeed:
    """Plans, by name, over the bandwidth between nodes, of the `tier` of `cluster` and all tiers beyond."""

    def __init__(self, plans: Sequence[str], step_s: StepSeconds, cluster: Cluster, tier: str) -> None:
        self._step_s, self._cluster, self._tier = step_s, cluster, tier
        self._known: dict[str, dict[float, float]] = {name: {} for name in plans}
        self._best: dict[float, BandwidthPoint] = {}

    def at(self, factor: float) -> BandwidthPoint:
        """The best plan at `factor` times the bandwidth. No plan is faster on a slower network, so those that took
        longer on a faster one are not simulated."""
        if factor not in self._best:
            network = scaled(self._cluster, self._tier, factor)
            best_s, best = inf, ""
            for name in sorted(self._known, key=lambda name: self._least_s(name, factor)):
                if self._least_s(name, factor) < best_s:
                    self._known[name][factor] = step_s = self._step_s(name, network)
                    best_s, best = min((best_s, best), (step_s, name))
            bandwidth = per_device_bytes_per_s(network, self._tier)
            self._best[factor] = BandwidthPoint(
                factor=factor, per_device_bytes_per_s=bandwidth, plan=best, step_s=best_s
            )
        return self._best[factor]

    def _least_s(self, name: str, factor: float) -> float:
        return max((step_s for of, step_s in self._known[name].items() if of >= factor), default=0.0)

    def enough(self, factors: Sequence[float]) -> BandwidthPoint:
        """The slowest network, to 5 %, whose step is at most 5 % longer than that of one without limit; the first of
        `factors`, which rise, where that is."""
        most_s = ENOUGH * self.at(UNLIMITED).step_s
        high = next((factor for factor in factors if self.at(factor).step_s <= most_s), UNLIMITED)
        low = max((factor for factor in factors if factor < high), default=high)
        while high > ENOUGH * low:
            middle = sqrt(low * high)
            low, high = (low, middle) if self.at(middle).step_s <= most_s else (middle, high)
        return self.at(high)
