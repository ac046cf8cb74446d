"""From a plan to its report in one call."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from simulator.cluster import Cluster
from simulator.engine import engine_name, simulate
from simulator.engine.noise import Noise
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower, lower_once
from simulator.plan import Plan
from simulator.report.metrics import Report, measure
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A plan's tasks, when they ran, and what that cost."""

    plan: Plan
    runtime: Runtime = IDEAL
    graph: TaskGraph
    timeline: Timeline
    report: Report


def run(profile: Profile, cluster: Cluster, plan: Plan, *, runtime: Runtime = IDEAL, noise: Noise | None = None) -> Run:
    """Lower, simulate and measure `plan`. Raises InputError when it does not fit profile or cluster."""
    model = ShardedModel(profile, plan)
    graph = lower(model, cluster, runtime)
    graph = noise.disturb(graph) if noise else graph
    timeline = simulate(graph, cluster, runtime)
    return Run(
        plan=plan,
        runtime=runtime,
        graph=graph,
        timeline=timeline,
        report=measure(model, cluster, graph, timeline, runtime),
    )


def step_report(
    profile: Profile, cluster: Cluster, plan: Plan, *, runtime: Runtime = IDEAL, noise: Noise | None = None
) -> Report:
    """The report of `run`, bit for bit, without its tasks: equal replicas and ranks are simulated once."""
    noise = noise or Noise()
    if noise.jitter:
        return run(profile, cluster, plan, runtime=runtime, noise=noise).report
    model, graph = lower_once(profile, plan, cluster, runtime, noise.stragglers)
    if noise.stragglers:
        owner = dict(enumerate(model.represented(len(cluster.devices)).tolist()))
        simulated = {
            device: factor for device, factor in noise.stragglers.items() if owner.get(device, device) == device
        }
        graph = replace(noise, stragglers=simulated).disturb(graph)
    return measure(model, cluster, graph, simulate(graph, cluster, runtime), runtime)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredPlan:
    """A plan, cut and lowered for a cluster and all that differ from it in bandwidths and latencies alone.

    once: of equal replicas and ranks the first alone, where there are any. latest: what `timeline` gave last, and for
    which cluster.
    """

    model: ShardedModel
    cluster: Cluster
    runtime: Runtime
    graph: TaskGraph
    once: bool
    latest: list[tuple[Cluster, Timeline]] = field(default_factory=list, repr=False, compare=False)

    def timeline(self, cluster: Cluster) -> Timeline:
        """The tasks simulated on one of these clusters.

        The latest is kept: a search judges the plan that is reported next. Where nothing is sent it is that of all.
        """
        for known, timeline in self.latest:
            alike = known is cluster or (not self.graph.routes and known.host_cores == cluster.host_cores)
            if alike and timeline.engine == engine_name():
                return timeline
        timeline = simulate(self.graph, cluster, self.runtime)
        self.latest[:] = [(cluster, timeline)]
        return timeline

    def serves(self, profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime, once: bool) -> bool:
        """Whether these inputs lower to the same: lowering reads devices and measured collectives, but no link.

        Only whether replicas and ranks are equal depends on which links are as fast as each other.
        """
        return (
            self.model.profile is profile
            and self.model.whole == plan
            and self.once == once
            and self.runtime == runtime
            and self.cluster.devices == cluster.devices
            and self.cluster.collectives == cluster.collectives
            and (self.cluster.is_wired_like(cluster) or not self._has_joint_transfers)
        )

    @property
    def _has_joint_transfers(self) -> bool:
        return any(route.copies > 1 for route in self.graph.routes)


_MOST_TASKS_KEPT = 1_000_000
_lowered: deque[LoweredPlan] = deque(maxlen=16)


def lowered(
    profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL, once: bool = False
) -> LoweredPlan:
    """A plan lowered, made once for as long as it is among the last few: for searches and sweeps over links.

    once: see LoweredPlan. Raises InputError when the plan fits neither profile nor cluster.
    """
    for known in _lowered:
        if known.serves(profile, cluster, plan, runtime, once):
            return known
    if once:
        model, graph = lower_once(profile, plan, cluster, runtime)
    else:
        model = ShardedModel(profile, plan)
        graph = lower(model, cluster, runtime)
    lowered = LoweredPlan(model=model, cluster=cluster, runtime=runtime, graph=graph, once=once)
    _lowered.appendleft(lowered)
    while len(_lowered) > 1 and sum(len(known.graph) for known in _lowered) > _MOST_TASKS_KEPT:
        _lowered.pop()
    return lowered


def step_seconds(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> float:
    """The simulated step alone, for searches that judge many plans."""
    return simulate(lower_once(profile, plan, cluster, runtime).graph, cluster, runtime).step_s
