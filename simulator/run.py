"""From a plan to its report in one call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean

from simulator.cluster import Cluster
from simulator.engine import engine_name, simulate
from simulator.engine.noise import Noise
from simulator.kept import Kept
from simulator.lowering.costs.typical_scaling import device_class
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower, lower_once
from simulator.plan import Plan
from simulator.report.extrapolation import DifferenceError, extrapolated
from simulator.report.interval import StepInterval, step_interval
from simulator.report.metrics import Report, measure, report_of
from simulator.report.steady_state import SimulatedStep, repeated_step
from simulator.report.step_totals import totals_of
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile

DRAWS, FEWEST_DRAWS = 32, 8
"""Simulations of an expected step, half of them mirror images: as many as DRAWN_TASKS allows, within these."""
DRAWN_TASKS = 500_000
"""Of all simulations together. Of 110,000 tasks the mean of 8 lies within 0.5 % of that of 32."""
QUARTILES = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


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
    """The report of `run` without its tasks: equal replicas, ranks and micro-batches are simulated once and counted.

    Bit for bit where micro-batches are few; else to 1e-9, but for the longest chain by dependencies, to 1e-3.
    """
    noise = noise or Noise()
    if noise.jitter:
        return run(profile, cluster, plan, runtime=runtime, noise=noise).report

    def simulated(part: Plan) -> SimulatedStep:
        return _simulated(profile, cluster, part, runtime, noise)

    repeated = repeated_step(plan, cluster, runtime, simulated, chains=True)
    if repeated is not None:
        latest, before = (totals_of(x.model, cluster, x.graph, x.timeline) for x in (repeated.latest, repeated.before))
        with suppress(DifferenceError):
            totals = extrapolated(latest, before, repeated.more)
            return report_of(totals, repeated.latest.model, plan, cluster, runtime)
    done = simulated(plan)
    return measure(done.model, cluster, done.graph, done.timeline, runtime)


def _simulated(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime, noise: Noise) -> SimulatedStep:
    """A step of which equal replicas and ranks are simulated once; noise: stragglers alone."""
    model, graph = lower_once(profile, plan, cluster, runtime, noise.stragglers)
    if noise.stragglers:
        owner = dict(enumerate(model.represented(len(cluster.devices)).tolist()))
        simulated = {
            device: factor for device, factor in noise.stragglers.items() if owner.get(device, device) == device
        }
        graph = replace(noise, stragglers=simulated).disturb(graph)
    timeline = simulate(graph, cluster, runtime)
    return SimulatedStep(model=model, cluster=cluster, graph=graph, timeline=timeline, microbatches=plan.microbatches)


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
        """Whether these inputs lower to the same: lowering reads devices, but no link and no collective's times.

        Only whether replicas and ranks are equal depends on which links are as fast as each other.
        """
        return (
            self.model.profile == profile
            and self.model.whole == plan
            and self.once == once
            and self.runtime == runtime
            and self.cluster.devices == cluster.devices
            and (self.cluster.is_wired_like(cluster) or all(route.copies == 1 for route in self.graph.routes))
        )


_lowered = Kept(budget=1_000_000)
"""By tasks: a point of a sweep judges some dozen plans, and the next point the same ones."""


def lowered(
    profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL, once: bool = False
) -> LoweredPlan:
    """A plan lowered, made once for as long as it is among those used last: for searches and sweeps over links.

    once: see LoweredPlan. Raises InputError when the plan fits neither profile nor cluster.
    """
    key = profile, once, plan.microbatches, plan.schedule, plan.layout
    known: LoweredPlan | None = _lowered.get(key, lambda: None, 0)
    if known is not None and known.serves(profile, cluster, plan, runtime, once):
        return known
    if once:
        model, graph = lower_once(profile, plan, cluster, runtime)
    else:
        model = ShardedModel(profile, plan)
        graph = lower(model, cluster, runtime)
    made = LoweredPlan(model=model, cluster=cluster, runtime=runtime, graph=graph, once=once)
    _lowered.put(key, made, len(graph))
    return made


def expected_step_s(profile: Profile, cluster: Cluster, plan: Plan, *, runtime: Runtime = IDEAL) -> float | None:
    """Seconds of a step on devices that vary as the captured steps did: wherever they meet, they wait for the slowest.

    The mean of simulations whose tasks vary independently (`Noise.variance_s`). None where they do not `vary`.
    """
    variance_s = step_variance_s(profile)
    if not vary(profile):
        return None
    graph = lower(ShardedModel(profile, plan), cluster, runtime)
    draws = min(DRAWS, max(FEWEST_DRAWS, DRAWN_TASKS // len(graph) // 2 * 2))
    noises = (Noise(variance_s=variance_s, seed=number // 2, mirrored=number % 2 > 0) for number in range(draws))
    return fmean(simulate(noise.disturb(graph), cluster, runtime).step_s for noise in noises)


def expected_interval(
    report: Report, profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL
) -> StepInterval:
    """The interval of a plan's step around the expected one: what every surface says."""
    return step_interval(report, profile, cluster, expected_step_s(profile, cluster, plan, runtime=runtime))


def vary(profile: Profile) -> bool:
    """Whether devices vary as captured steps did: CPUs, which alone ranks share with a whole machine, with a spread."""
    return step_variance_s(profile) > 0 and device_class(profile.device) == "CPU"


def step_variance_s(profile: Profile) -> float:
    """The variance of the profile's whole steps over their seconds; 0 where it is not known."""
    return (profile.step_spread_s / QUARTILES) ** 2 / profile.step_s if profile.step_s else 0.0


def step_seconds(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> float:
    """The simulated step alone, for searches that judge many plans."""

    def simulated(part: Plan) -> SimulatedStep:
        return _simulated(profile, cluster, part, runtime, Noise())

    repeated = repeated_step(plan, cluster, runtime, simulated)
    if repeated is None:
        return simulated(plan).timeline.step_s
    latest_s, before_s = repeated.latest.timeline.step_s, repeated.before.timeline.step_s
    return latest_s + repeated.more * (latest_s - before_s)
