"""From a plan to its report in one call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from simulator.cluster import Cluster
from simulator.engine import engine_name, simulate
from simulator.engine.noise import Noise
from simulator.errors import InputError
from simulator.lowering import schedules
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower, lower_once
from simulator.lowering.typical_scaling import device_class
from simulator.network.token_buckets import depths_bytes
from simulator.plan import Plan
from simulator.report.extrapolation import DifferenceError, extrapolated
from simulator.report.metrics import Report, measure, report_of
from simulator.report.step_totals import totals_of
from simulator.runtime import IDEAL, Runtime
from simulator.steady_state import Round, SimulatedStep, find_round, is_put_in, repeats_its_chains
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile

DRAWS = 32
"""Simulations of an expected step: 16 and their mirror images."""
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

    Bit for bit where micro-batches are few; else to 1e-9.
    """
    noise = noise or Noise()
    if noise.jitter:
        return run(profile, cluster, plan, runtime=runtime, noise=noise).report
    repeated = _repeated(profile, cluster, plan, runtime, noise)
    if repeated is not None and repeats_its_chains(repeated.round, repeated.latest):
        latest, before = (totals_of(x.model, cluster, x.graph, x.timeline) for x in (repeated.latest, repeated.before))
        with suppress(DifferenceError):
            totals = extrapolated(latest, before, repeated.more)
            return report_of(totals, repeated.latest.model, plan, cluster, runtime)
    done = _simulated(profile, cluster, plan, runtime, noise)
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


class _Repeated(NamedTuple):
    """Two steps of a plan with fewer micro-batches, of which `latest` has one round more; `more` make the plan's."""

    round: Round
    before: SimulatedStep
    latest: SimulatedStep
    more: int


LONGEST_ROUND = 4
"""Micro-batches after which states are compared; times those that a schedule takes together."""
SHARE_TRIED = 3
"""A step is tried with up to so many times fewer micro-batches: where none repeats, little time was lost."""


def _repeated(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime, noise: Noise) -> _Repeated | None:
    """Steps of fewer micro-batches that say what those of the plan take; None where it has few, or none repeats."""
    schedule, depth = schedules.load(plan.schedule), len({x.device_set for x in plan.distinct_placements})
    meets = runtime.rendezvous and schedule.receives is not None  # with buffers for all micro-batches
    if plan.work or meets or schedule.double_buffered or depths_bytes(cluster).any():
        return None
    block = schedules.round_length(depth, plan.microbatches) if schedule.several_stages else 1
    size = 6 * block if schedule.several_stages else 2 * depth + 4
    while SHARE_TRIED * size <= plan.microbatches and plan.microbatches % block == 0:
        try:
            found = _repeated_of(profile, cluster, plan, runtime, noise, size, block)
        except InputError:  # what is wrong with the plan is said of the whole of it
            return None
        if found is not None:
            return found
        size *= 2
    return None


def _repeated_of(
    profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime, noise: Noise, size: int, block: int
) -> _Repeated | None:
    """As `_repeated`, of about `size` micro-batches, of which a schedule takes `block` together."""

    def simulated(microbatches: int) -> SimulatedStep:
        part = replace(plan, microbatches=microbatches, batch_size=plan.microbatch_size * microbatches)
        return _simulated(profile, cluster, part, runtime, noise)

    latest = simulated(size)
    for each in range(block, LONGEST_ROUND * block + 1, block):
        found = find_round(latest, each)
        if found is None:
            continue
        if rest := (plan.microbatches - size) % each:
            latest = simulated(size + rest)
            found = find_round(latest, each)
        more = (plan.microbatches - latest.microbatches) // each
        if found is not None and is_put_in(found, before := simulated(latest.microbatches - each), latest):
            return _Repeated(found, before, latest, more)
        return None
    return None


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
_lowered: OrderedDict[Hashable, LoweredPlan] = OrderedDict()
"""Those used last, the oldest first: a point of a sweep judges some dozen plans, and the next point the same ones."""


def lowered(
    profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL, once: bool = False
) -> LoweredPlan:
    """A plan lowered, made once for as long as it is among those used last: for searches and sweeps over links.

    once: see LoweredPlan. Raises InputError when the plan fits neither profile nor cluster.
    """
    key = id(profile), once, plan.microbatches, plan.schedule, tuple(map(id, plan.placements.values()))
    known = _lowered.get(key)
    if known is not None and known.serves(profile, cluster, plan, runtime, once):
        _lowered.move_to_end(key)
        return known
    if once:
        model, graph = lower_once(profile, plan, cluster, runtime)
    else:
        model = ShardedModel(profile, plan)
        graph = lower(model, cluster, runtime)
    kept = _lowered[key] = LoweredPlan(model=model, cluster=cluster, runtime=runtime, graph=graph, once=once)
    _lowered.move_to_end(key)
    while len(_lowered) > 1 and sum(len(known.graph) for known in _lowered.values()) > _MOST_TASKS_KEPT:
        _lowered.popitem(last=False)
    return kept


def expected_step_s(profile: Profile, cluster: Cluster, plan: Plan, *, runtime: Runtime = IDEAL) -> float | None:
    """Seconds of a step on devices that vary as the captured steps did: wherever they meet, they wait for the slowest.

    The mean of DRAWS simulations whose tasks vary independently (`Noise.variance_s`). None for what is no CPU, which
    alone its ranks share with a whole machine, and where the profile has no spread of its step.
    """
    variance_s = step_variance_s(profile)
    if not variance_s or device_class(profile.device) != "CPU":
        return None
    graph = lower(ShardedModel(profile, plan), cluster, runtime)
    noises = (Noise(variance_s=variance_s, seed=number // 2, mirrored=number % 2 > 0) for number in range(DRAWS))
    return fmean(simulate(noise.disturb(graph), cluster, runtime).step_s for noise in noises)


def step_variance_s(profile: Profile) -> float:
    """The variance of the profile's whole steps over their seconds; 0 where it is not known."""
    return (profile.step_spread_s / QUARTILES) ** 2 / profile.step_s if profile.step_s else 0.0


def step_seconds(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> float:
    """The simulated step alone, for searches that judge many plans."""
    repeated = _repeated(profile, cluster, plan, runtime, Noise())
    if repeated is None:
        return _simulated(profile, cluster, plan, runtime, Noise()).timeline.step_s
    latest_s, before_s = repeated.latest.timeline.step_s, repeated.before.timeline.step_s
    return latest_s + repeated.more * (latest_s - before_s)
