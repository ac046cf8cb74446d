"""Sensitivity of a step: the same plan simulated again with one resource twice as fast."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from simulator.cluster import Cluster
from simulator.plan import Plan
from simulator.run import step_seconds
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """`change` (in words) of a resource ("compute", "server" or a link tier) makes the step `speedup` times faster."""

    change: str
    resource: str
    speedup: float


def gains(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> list[Gain]:
    """Every resource doubled by itself, the largest gain first."""
    return gains_of(lambda changed: step_seconds(profile, changed, plan, runtime), cluster)


def gains_of(
    step_s: Callable[[Cluster], float], cluster: Cluster, resources: Collection[str] | None = None
) -> list[Gain]:
    """As `gains`, of anything whose step on a cluster takes `step_s(cluster)` seconds.

    resources: the ones to double, by default all.
    """
    before_s = step_s(cluster)
    gains = []
    for change, resource, faster in _doubled(cluster):
        if resources is None or resource in resources:
            after_s = step_s(faster())
            gains.append(Gain(change=change, resource=resource, speedup=before_s / after_s if after_s else 1.0))
    return sorted(gains, key=lambda gain: -gain.speedup)


def _doubled(cluster: Cluster) -> Iterator[tuple[str, str, Callable[[], Cluster]]]:
    """(change in words, resource, what makes the changed cluster)."""
    yield "devices twice as fast", "compute", partial(cluster.with_speed, 2.0, "worker")
    if cluster.servers:
        yield "servers twice as fast", "server", partial(cluster.with_speed, 2.0, "server")
    for tier in cluster.tiers:
        wide = partial(cluster.with_links, tier, lambda link: link.times(2.0))
        yield f"{tier} links with twice the bandwidth", tier, wide
        if any(link.latency_s > 0 for link in cluster.links if link.tier == tier):
            quick = partial(cluster.with_links, tier, lambda link: link.with_latency(link.latency_s / 2))
            yield f"{tier} links with half the latency", tier, quick
