"""What there is to try, in the order of lower bounds, simulated until nothing that is left can be among the best.

A choice is bounded by what is known without its plan, where there is such a bound, else by its plan. What does not fit,
by a bound or simulated, is tried with more recomputation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import floor, inf, log
from typing import Any, NamedTuple

from partitioners import StrategyChoice, choices, make_plan, options
from partitioners._grid_choices import recomputing_more
from simulator.cluster import Cluster
from simulator.errors import InputError, MissingExtraError
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Plan, StepSettings
from simulator.report.metrics import Report
from simulator.run import step_report
from simulator.runtime import Runtime
from simulator.sweep.bounds import Bound, plan_bound
from simulator.workload import Profile

MOST_SIMULATED = 24
"""Choices of a strategy, where its best is one of several answers."""
ALIKE = 1.05
"""Bounds within this ratio do not say which of two choices is faster: the one that is cut less is tried first."""

ChoiceBound = Callable[[StrategyChoice, Cluster], Bound]


class Simulated(NamedTuple):
    """What a plan has of the objective, and whether it fits into memory."""

    score: float
    fits: bool


class Queued(NamedTuple):
    """A choice on a cluster, with its plan where that is made."""

    choice: StrategyChoice
    cluster: Cluster
    plan: Plan | None = None
    bounded: int = 0
    """By so many of the bounds that need no plan."""


def roughly(bound: Bound, cluster: Cluster) -> float:
    """The largest power of ALIKE that is no more than the bound of a step."""
    return float(ALIKE ** floor(log(bound.step_s, ALIKE))) if bound.step_s else 0.0


@dataclass(slots=True, kw_only=True)
class ChoiceSearch:
    """A queue of choices for a profile. Judging one may add more."""

    profile: Profile
    runtime: Runtime
    simulate: Callable[[StrategyChoice, Cluster, Plan], Simulated]
    """Raises InputError where the plan cannot be."""
    score: Callable[[Bound, Cluster], float] = lambda bound, cluster: bound.step_s
    """No plan with such a bound has less of the objective."""
    bounds: Sequence[ChoiceBound] = ()
    """Of a choice that is a grid, where they are known without its plan, each tighter and slower than the one before;
    raise InputError where it has no plan."""
    group: Callable[[StrategyChoice], Hashable] = lambda choice: None
    """Of choices that are alike the best alone counts among the best."""
    too_large: list[tuple[StrategyChoice, Bound]] = field(default_factory=list)
    """What exceeds every device by its bound, with all recomputation that there is."""
    refused: list[tuple[StrategyChoice, str]] = field(default_factory=list)
    """What cannot be built, with the reason."""
    queue: list[tuple[float, int, Queued]] = field(default_factory=list)
    """By bounds of the score."""
    best: dict[Hashable, float] = field(default_factory=dict)
    """By group the least score so far of a plan that fits."""
    added: int = 0

    def add(self, choice: StrategyChoice, cluster: Cluster) -> None:
        """Put a choice in the queue by its first bound."""
        self._put(Queued(choice, cluster))

    def _put(self, queued: Queued) -> None:
        """By the next bound that is known without a plan, else by that of its plan: without either it comes first."""
        choice, cluster, plan, bounded = queued
        bound = Bound(step_s=0.0, peak_bytes=0.0)
        try:
            if plan is not None:
                bound = plan_bound(ShardedModel(self.profile, plan), cluster, self.runtime)
            elif choice.grid is not None and self.bounds:
                bound, bounded = self.bounds[bounded](choice, cluster), bounded + 1
        except InputError as error:
            self.refused.append((choice, str(error)))
            return
        if bound.peak_bytes > _capacity(cluster):
            if not self._recomputed(choice, cluster):
                self.too_large.append((choice, bound))
            return
        self.added += 1
        heappush(self.queue, (self.score(bound, cluster), self.added, Queued(choice, cluster, plan, bounded)))

    def run(self, top: int, goes_on: Callable[[], bool]) -> bool:
        """Judge until the best `top` groups are certain, which it returns; goes_on: asked before each further bound or
        plan."""
        while self.queue:
            bound, _, queued = self.queue[0]
            if sum(score <= bound for score in self.best.values()) >= top:
                return True
            if not goes_on():
                return False
            heappop(self.queue)
            if queued.choice.grid is not None and queued.bounded < len(self.bounds):
                self._put(queued)
                continue
            try:
                self._judge(queued)
            except (InputError, MissingExtraError) as error:
                self.refused.append((queued.choice, str(error)))
        return True

    def _judge(self, queued: Queued) -> None:
        choice, cluster, plan, bounded = queued
        if plan is None:
            plan = choice.plan(self.profile, cluster)
            if not bounded:
                self._put(queued._replace(plan=plan))  # by its own bound
                return
        score, fits = self.simulate(choice, cluster, plan)
        if fits:
            group = self.group(choice)
            self.best[group] = min(self.best.get(group, inf), score)
        else:
            self._recomputed(choice, cluster)

    def _recomputed(self, choice: StrategyChoice, cluster: Cluster) -> bool:
        """Add the choice with more recomputation, if there is any."""
        more = recomputing_more(choice)
        if more is not None:
            self.add(more, cluster)
        return more is not None

    @property
    def left(self) -> list[StrategyChoice]:
        """What was not judged, by bounds."""
        return [candidate.choice for _, _, candidate in sorted(self.queue, key=lambda entry: entry[:2])]

    @property
    def least(self) -> float:
        """Nothing of that has a lower score; 0 where nothing is left."""
        return self.queue[0][0] if self.queue else 0.0


def _capacity(cluster: Cluster) -> float:
    """Of the largest device: more than that fits nowhere."""
    sizes = (inf if device.memory_bytes is None else device.memory_bytes for device in cluster.devices)
    most: float = cluster.kept.get(_capacity, lambda: max(sizes, default=inf))
    return most


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedChoice:
    """A choice, its plan, and the report of that, simulated as the runtime has it."""

    choice: StrategyChoice
    plan: Plan
    runtime: Runtime
    report: Report

    @staticmethod
    def of(choice: StrategyChoice, plan: Plan, profile: Profile, cluster: Cluster, runtime: Runtime) -> JudgedChoice:
        """Raises InputError where the plan cannot be."""
        report = step_report(profile, cluster, plan, runtime=runtime)
        return JudgedChoice(choice=choice, plan=plan, runtime=runtime, report=report)


def best_of_strategy(
    name: str,
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    own: Mapping[str, Any],
    *,
    seed: int = 0,
    zero: int | None = None,
) -> JudgedChoice:
    """The best of what there is to try of a strategy; where options of its own are given, or where it searches by
    itself, what `make_plan` makes. zero: the stage of shared states, None for any.

    Raises InputError where nothing can be built.
    """
    if own or "effort" in options(name):
        choice = StrategyChoice(strategy=name, step=step, own=own)
        plan = replace(choice, own={"seed": seed, **own}).plan(profile, cluster)
        return JudgedChoice.of(choice, plan, profile, cluster, step.runtime)
    best = best_choice(name, profile, cluster, step, lambda each: zero in (None, each.step.states.stage))
    if best.choice.strategy == name:
        return best
    return replace(best, report=replace(best.report, strategy=f"{name} (as {best.choice.strategy})"))  # it recomputes


def plan_by_choice(
    name: str, profile: Profile, cluster: Cluster, step: StepSettings, /, *, choice: str = "default", **own: Any
) -> Plan:
    """The strategy's plan as `make_plan` makes it, or (choice "best") that of `best_of_strategy`."""
    if choice == "default":
        return make_plan(name, profile, cluster, step, **own)
    seed, zero = own.pop("seed", 0), step.states.stage or None
    return best_of_strategy(name, profile, cluster, step, own, seed=seed, zero=zero).plan


def best_choice(
    name: str, profile: Profile, cluster: Cluster, step: StepSettings, wanted: Callable[[StrategyChoice], bool]
) -> JudgedChoice:
    """Of what there is to try of a strategy that does not search by itself, what fits with the shortest step, else with
    the least memory: of the least bounds MOST_SIMULATED are simulated.

    Raises InputError where nothing can be built.
    """
    judged: list[JudgedChoice] = []

    def simulate(choice: StrategyChoice, part: Cluster, plan: Plan) -> Simulated:
        judged.append(JudgedChoice.of(choice, plan, profile, part, step.runtime))
        return Simulated(judged[-1].report.step_s, judged[-1].report.fits)

    search = ChoiceSearch(profile=profile, runtime=step.runtime, simulate=simulate, score=roughly)
    for choice in filter(wanted, choices(name, profile, cluster, step)):
        search.add(choice, cluster)
    search.run(1, lambda: len(judged) < MOST_SIMULATED)
    if judged:
        reports = (each.report for each in judged)
        order = [(0.0 if report.fits else report.peak_memory_bytes, report.step_s) for report in reports]
        return judged[order.index(min(order))]
    smallest = min(search.too_large, key=lambda each: each[1].peak_bytes, default=None)
    asked = smallest[0] if smallest else StrategyChoice(strategy=name, step=step)  # what does not fit says by how much
    return JudgedChoice.of(asked, asked.plan(profile, cluster), profile, cluster, step.runtime)
