"""What there is to try, in the order of lower bounds, simulated until nothing that is left can be among the best.

A choice is bounded by what is known without its plan, where there is such a bound, else by its plan. What does not fit,
by a bound or simulated, is tried with more recomputation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from partitioners import StrategyChoice, choices
from partitioners._grid_choices import recomputing_more
from simulator.cluster import Cluster
from simulator.errors import InputError, MissingExtraError
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Plan, StepSettings
from simulator.run import step_report
from simulator.runtime import Runtime
from simulator.sweep.bounds import Bound, plan_bound
from simulator.workload import Profile

MOST_SIMULATED = 12
"""Choices of a strategy, where its best is one of several answers."""

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
        """Judge until the best `top` groups are certain, which it returns; goes_on: asked before each further plan."""
        while self.queue:
            bound, _, queued = self.queue[0]
            if sum(score <= bound for score in self.best.values()) >= top:
                return True
            tighter = queued.choice.grid is not None and queued.bounded < len(self.bounds)
            if not tighter and not goes_on():
                return False
            heappop(self.queue)
            if tighter:
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


def best_choice(
    name: str, profile: Profile, cluster: Cluster, step: StepSettings, wanted: Callable[[StrategyChoice], bool]
) -> tuple[StrategyChoice, Plan]:
    """Of what there is to try of a strategy that does not search by itself, what fits with the shortest step, else with
    the least memory: of the least bounds MOST_SIMULATED are simulated.

    Raises InputError where nothing can be built.
    """
    judged: list[tuple[float, float, StrategyChoice, Plan]] = []

    def simulate(choice: StrategyChoice, part: Cluster, plan: Plan) -> Simulated:
        report = step_report(profile, part, plan, runtime=step.runtime)
        judged.append((0.0 if report.fits else report.peak_memory_bytes, report.step_s, choice, plan))
        return Simulated(report.step_s, report.fits)

    search = ChoiceSearch(profile=profile, runtime=step.runtime, simulate=simulate)
    for choice in filter(wanted, choices(name, profile, cluster, step)):
        search.add(choice, cluster)
    search.run(1, lambda: len(judged) < MOST_SIMULATED)
    if not judged and search.too_large:  # a plan that does not fit says by how much
        smallest = min(search.too_large, key=lambda each: each[1].peak_bytes)[0]
        return smallest, smallest.plan(profile, cluster)
    if not judged:
        asked = StrategyChoice(strategy=name, step=step)
        return asked, asked.plan(profile, cluster)
    return min(judged, key=lambda each: each[:2])[2:]
