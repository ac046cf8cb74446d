"""From a configuration to its outcome: cluster, caps, plan, run. Plain functions, which worker processes call.

Every cap is checked before anything is planned, from the numbers of the configuration alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dashboard.state.candidates import Candidate, SearchOverError, recorded_candidates
from dashboard.state.caps import EARLY_TASKS, MOST_TASKS, is_counted, require_size, require_small, searches
from dashboard.state.configuration import Configuration
from dashboard.state.flows import Flows, flows_of
from dashboard.state.measures import Shares, fullest, shares
from dashboard.state.planning import Tell, build_plan, changed_cluster, usual_cluster
from simulator.cluster import Cluster
from simulator.errors import ShardscopeError
from simulator.language_models.training_stack import runtime_of
from simulator.network.catalogue import ClusterFile
from simulator.plan import Plan
from simulator.report.interval import StepInterval, step_interval
from simulator.report.memory import Fit
from simulator.report.metrics import Report
from simulator.run import Run, expected_interval, run, step_report
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats
from simulator.units import format_time
from simulator.workload import Profile

MOST_BEHIND_TASKS = 1_000_000
"""Behind the pages a step of more tasks, whose replicas are equal, is counted alone."""
MOST_SHIPPED_TASKS = 60_000
"""A step with more tasks than this comes back from the background as its Glance alone."""
SEARCH_S = 60.0
"""Seconds after which a search ends with the best plan that it has tried; one that has none then is given up later."""
Show = Callable[["Outcome"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a simulation needs. uploaded: the cluster's file where it is no preset. plan: known from before.

    card: where the profile's model card is read from, empty for a measured one. light: the outcome may stay behind
    where it is large.
    """

    configuration: Configuration
    profile: Profile
    uploaded: ClusterFile | None = None
    card: str = ""
    plan: Plan | None = None
    light: bool = False

    @property
    def runtime(self) -> Runtime:
        """What the profile was captured with, and what was measured of it on the uploaded cluster."""
        return runtime_of(self.profile, self.uploaded.runtime if self.uploaded else IDEAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A plan without its tasks, the runtime that it was counted with, and its report without that of its layers.

    early: whether the tasks are being simulated; else they are too many to be held and drawn each.
    """

    plan: Plan
    report: Report
    early: bool
    runtime: Runtime = IDEAL


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The simulation of a configuration: a run, or what was counted of one, or the reason why there is neither.

    usual: the cluster before its links and speed were changed. took_s: wall-clock seconds of plan and simulation.
    candidates: the plans that a search tried, in order. note: what must be known about the plan.
    """

    configuration: Configuration
    profile: Profile
    usual: Cluster | None = None
    cluster: Cluster | None = None
    run: Run | None = None
    counted: Counted | None = None
    reason: str = ""
    took_s: float = 0.0
    candidates: tuple[Candidate, ...] = ()
    note: str = ""

    @property
    def report(self) -> Report | None:
        """Of the step, whether its tasks are at hand or not; None where it cannot run."""
        done = self.run or self.counted
        return done.report if done else None

    @property
    def plan(self) -> Plan | None:
        """The plan of the step, as of `report`."""
        done = self.run or self.counted
        return done.plan if done else None

    @property
    def undrawn(self) -> str:
        """Why there are no tasks to draw."""
        if self.counted is not None:
            why = "being simulated" if self.counted.early else "too many to draw"
            return f"{self.counted.report.tasks:,} tasks are {why}"
        return self.reason

    @cached_property
    def flows(self) -> Flows | None:
        """Where the run's bytes go, made when somebody asks; None without a run."""
        return None if self.run is None or self.cluster is None else flows_of(self.run, self.profile, self.cluster)

    @cached_property
    def shares(self) -> Shares | None:
        """Where the time of its devices goes, made when somebody asks; None without a run."""
        return None if self.run is None or self.cluster is None else shares(self.run, self.cluster)

    @cached_property
    def interval(self) -> StepInterval | None:
        """Between which seconds the step is expected, made when somebody asks; None without a step."""
        if self.counted is not None and self.cluster is not None:
            return step_interval(self.counted.report, self.profile, self.cluster)
        if self.run is None or self.cluster is None:
            return None
        return expected_interval(self.run.report, self.profile, self.cluster, self.run.plan, self.run.runtime)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Its ends, None also where nothing is known of how far the step may be off."""
        return (self.interval.low_s, self.interval.high_s) if self.interval and self.interval.parts else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Glance:
    """An outcome in a few figures; the first seven are 0 where there is no run, and `reason` says why.

    interval_s: the seconds between which the step is with 90 % certainty, None where nothing is known of that.
    between_bytes, by_layer: None without a run; of activations, and of gradients and gathers, shape (layers, 2).
    """

    configuration: Configuration
    step_s: float = 0.0
    total_bytes: float = 0.0
    between_bytes: float | None = None
    load_balance_ratio: float = 0.0
    peak_memory_bytes: float = 0.0
    memory_bytes: float | None = None
    computing: int = 0
    interval_s: tuple[float, float] | None = None
    bottleneck: str = ""
    fit: Fit = "does not fit"
    reason: str = ""
    microbatches: int = 1
    by_layer: Floats | None = None
    plan: Plan | None = None

    @property
    def fits(self) -> bool:
        """Whether it is predicted to fit, at the border or not."""
        return self.ran and self.fit in ("fits", "border")

    @property
    def ran(self) -> bool:
        """Whether there is a run."""
        return self.plan is not None


def glance_of(outcome: Outcome) -> Glance:
    """The outcome in figures."""
    report, flows = outcome.report, outcome.flows
    if report is None:
        return Glance(configuration=outcome.configuration, reason=outcome.reason)
    used = fullest(report)
    return Glance(
        configuration=outcome.configuration,
        step_s=report.step_s,
        total_bytes=report.communication_bytes.total,
        between_bytes=flows.between_bytes if flows else None,
        load_balance_ratio=report.load_balance_ratio,
        peak_memory_bytes=used.peak_memory_bytes,
        memory_bytes=used.memory_bytes,
        computing=sum(device.compute_s > 0 for device in report.devices),
        interval_s=outcome.interval_s,
        bottleneck=str(report.bottleneck),
        fit=report.fit,
        reason=report.verdict,
        microbatches=report.microbatches,
        by_layer=np.stack([flows.activation_bytes.sum(axis=1), flows.state_bytes.sum(axis=1)], axis=1)
        if flows
        else None,
        plan=outcome.plan,
    )


def simulated(
    request: Request, tell: Tell | None = None, show: Show | None = None
) -> tuple[Outcome | None, Glance | None]:
    """The outcome of a request (None where it stays behind) and its figures where it is light.

    tell: is told how a search gets on; show: is shown what the best of its plans so far comes to, and the numbers of
    another step before its many tasks are there, unless it is light.
    """
    outcome = compute(request, tell, None if request.light else show)
    if not request.light:
        return outcome, None  # somebody waits for it, and for its figures later
    large = outcome.run is not None and outcome.run.report.tasks > MOST_SHIPPED_TASKS
    return (None if large else outcome), glance_of(outcome)


def compute(request: Request, tell: Tell | None = None, show: Show | None = None) -> Outcome:
    """Plan, check and simulate; what cannot be is an outcome with the reason. tell, show: as of `simulated`."""
    now, profile, runtime = request.configuration, request.profile, request.runtime
    known = Outcome(configuration=now, profile=profile)
    began_s, candidates = time.perf_counter(), list[Candidate]()
    early = None if searches(now.strategy) else show
    most = MOST_BEHIND_TASKS if request.light else MOST_TASKS

    def done(**what: Any) -> Outcome:
        return replace(known, took_s=time.perf_counter() - began_s, candidates=tuple(candidates), **what)

    def outcome(cluster: Cluster, plan: Plan, note: str = "") -> Outcome:
        plan.check(profile, cluster)
        if is_counted(profile, plan, cluster, runtime, EARLY_TASKS if early else most):
            report = replace(step_report(profile, cluster, plan, runtime=runtime), layers=())
            counted = Counted(plan=plan, report=report, early=report.tasks <= most, runtime=runtime)
            if not counted.early:
                return done(counted=counted, note=note)
            if early and report.tasks > EARLY_TASKS:
                early(done(counted=counted))
        else:
            require_size(profile, plan, cluster, runtime)
        return done(run=run(profile, cluster, plan, runtime=runtime), note=note)

    def so_far(plan: Plan) -> None:
        with suppress(ShardscopeError):
            assert show is not None and known.cluster is not None
            said = f"the best of {len(candidates)} plans so far: the search goes on"
            show(outcome(known.cluster, _named(plan, now), said))

    try:
        known = _placed(known, request)
        cluster = known.cluster
        assert cluster is not None
        if request.plan is None:
            require_small(now, profile)
        if request.plan is not None:
            return outcome(cluster, request.plan)
        try:
            listener = so_far if show is not None and searches(now.strategy) else None
            with recorded_candidates(candidates, cluster, SEARCH_S, listener):
                plan, note = build_plan(now, profile, cluster, runtime, tell), ""
        except SearchOverError as over:
            plan = _named(over.plan, now)
            ended = f"the search ended after {SEARCH_S:.0f} s with the best of {len(candidates)} plans"
            note = f"{ended}; its command searches on"
        return outcome(cluster, plan, note)
    except ShardscopeError as error:
        return replace(known, reason=str(error), took_s=time.perf_counter() - began_s)


def _placed(outcome: Outcome, request: Request) -> Outcome:
    """The outcome with its cluster, as it is and as the controls change it. Raises InputError, UnknownNameError."""
    usual = usual_cluster(request.configuration, request.uploaded)
    return replace(outcome, usual=usual, cluster=changed_cluster(usual, request.configuration))


def _named(plan: Plan, now: Configuration) -> Plan:
    """A plan that a search tried, under the name that the search would give it."""
    return replace(plan, strategy=f"{now.strategy} (as {plan.strategy})" if plan.strategy else now.strategy)


def stopped(request: Request, why: str, took_s: float) -> Outcome:
    """The outcome of a simulation that was ended."""
    strategy = request.configuration.strategy
    doing = "searching" if searches(strategy) else "simulating"
    reason = f"{doing} {strategy} was {why} after {format_time(took_s)}"
    outcome = Outcome(configuration=request.configuration, profile=request.profile, reason=reason, took_s=took_s)
    with suppress(ShardscopeError):  # the controls of its links still apply
        return _placed(outcome, request)
    return outcome
