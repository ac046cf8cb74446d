"""The best plan of all that strategies say there is to try, and how far it is from lower bounds.

1. Of a measured network what strategies that search by themselves find with the least effort: what few bytes cost is
   in no lower bound, so where links are slow the order of these alone would look at the best plans last.
2. Choices of the other strategies, grids ahead, in the order of lower bounds: first of what is known without a plan,
   then of the plan, then simulated, until nothing left can be better. What does not fit is tried with more
   recomputation.
3. Strategies that search by themselves, with the time that is left; more than once where there is time for it.
4. The best plans of all strategies are annealed until the time is spent.

The best so far is a valid plan at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product
from math import inf

from partitioners import StrategyChoice, choices, options
from partitioners._choice_search import ChoiceBound, ChoiceSearch, Simulated
from partitioners._judge.judge import TimeSpent
from partitioners._search.annealing import Annealing, Scored
from simulator.cluster import Cluster
from simulator.errors import InputError, MissingExtraError, StuckError
from simulator.network.topologies import take
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan, StepSettings
from simulator.report.metrics import Report
from simulator.run import step_report
from simulator.sweep.bounds import Bound, compute_bound_s, dollars_bound, memory_bound_bytes
from simulator.workload import Profile

FULL_EFFORT_S = 60.0
"""A strategy with an option of effort gets the share of its usual effort that the time left is of this."""
LEAST_EFFORT = 0.05
"""Of those strategies."""
_TIMES_LONGER = 3.0
"""A strategy that searches with twice the effort takes less than so many times as long."""
SURE = 1e-6
"""A best plan this close to the lower bound, relative, is not searched on."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What to have least of."""

    column: str
    """Its name, with its unit."""
    score: Callable[[Report], float]
    of_bound: Callable[[Bound, Cluster], float]
    """No plan with such a bound has less."""
    bound: Callable[[Profile, Cluster, StepSettings], float]
    """No plan without recomputation has less, whatever strategy made it."""
    fewer_devices: bool = False
    """Whether a part of the cluster may be better than all of it."""


_STEP = Objective(
    "step_s",
    lambda report: report.step_s,
    lambda bound, cluster: bound.step_s,
    lambda profile, cluster, step: compute_bound_s(profile, cluster, step.batch_size),
)
OBJECTIVES: Mapping[str, Objective] = {
    "step": _STEP,
    "throughput": _STEP,  # the batch is given, so the shortest step is the highest throughput
    "cost": Objective(
        "dollars_per_step",
        lambda report: report.dollars_per_step or 0.0,
        lambda bound, cluster: bound.step_s * ordered_sum(d.dollars_per_hour or 0.0 for d in cluster.devices) / 3600,
        lambda profile, cluster, step: dollars_bound(profile, cluster, step.batch_size),
        fewer_devices=True,
    ),
    "memory": Objective(
        "peak_memory_bytes",
        lambda report: report.peak_memory_bytes,
        lambda bound, cluster: bound.peak_bytes,
        lambda profile, cluster, step: memory_bound_bytes(profile, cluster, step.optimizer_ratio),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPlan:
    """A simulated plan that fits into memory."""

    plan: Plan
    cluster: Cluster
    """The first devices of that searched, all but for the objective cost."""
    report: Report
    score: float
    refined: bool = False
    """Whether annealing made it."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a search did."""

    simulated: int = 0
    too_large: int = 0
    """Plans that do not fit into memory, by a bound or simulated."""
    infeasible: int = 0
    bounded: int = 0
    """Choices that were not simulated, of which none is better than `least`."""
    least: float = 0.0
    best: dict[str, ScoredPlan] = field(default_factory=dict)
    """By strategy."""
    complete: bool = False
    """Whether every choice was simulated or cannot be better."""


@dataclass(kw_only=True, eq=False)
class PlanSearch:
    """A search over all choices of the strategies `names` for a step of `profile` on `cluster`.

    bounds: of a choice without its plan, see ChoiceSearch. wanted: choices to leave out otherwise.
    """

    profile: Profile
    cluster: Cluster
    objective: Objective
    step: StepSettings
    names: Sequence[str]
    time_left_s: Callable[[], float]
    bounds: Sequence[ChoiceBound] = ()
    wanted: Callable[[StrategyChoice], bool] = lambda choice: True
    seed: int = 0
    watch: Callable[[Tally], None] = lambda tally: None
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._clusters = _parts(self.cluster) if self.objective.fewer_devices else [self.cluster]
        self._bounds: dict[int, float] = {}  # by workers
        self._search = ChoiceSearch(
            profile=self.profile,
            runtime=self.step.runtime,
            simulate=self._simulated_choice,
            score=lambda bound, part: max(self.objective.of_bound(bound, part), self._least(part)),
            bounds=self.bounds,
        )

    @property
    def best(self) -> ScoredPlan | None:
        """The best plan so far."""
        return min(self.tally.best.values(), key=lambda scored: scored.score, default=None)

    @property
    def bound(self) -> float:
        """Lower bound on the score of every plan."""
        return min(map(self._least, self._clusters))

    def _least(self, cluster: Cluster) -> float:
        """The same on a cluster."""
        if cluster.workers not in self._bounds:
            self._bounds[cluster.workers] = self.objective.bound(self.profile, cluster, self.step)
        return self._bounds[cluster.workers]

    def run(self) -> None:
        """Search until `time_left_s` is at most 0 and something fits, or nothing can be better."""
        if not self.bounds:
            self._ask_all(LEAST_EFFORT, self.seed)
        self.tally.complete = self._choose() and self._ask()
        self._anneal()

    def _choose(self) -> bool:
        search, others = self._search, list[tuple[StrategyChoice, Cluster]]()
        for cluster, name in product(self._clusters, self.names):
            for choice in self._choices(name, cluster) if "effort" not in options(name) else ():
                search.add(choice, cluster) if choice.grid else others.append((choice, cluster))
        search.run(1, self._goes_on)
        for other in others:
            search.add(*other)
        certain = search.run(1, self._goes_on)  # not where the grids alone took too long: they are still queued
        self.tally.bounded, self.tally.least = len(search.queue), search.least
        self.tally.infeasible += len(search.refused)
        self.tally.too_large += len(search.too_large)
        return certain

    def _goes_on(self) -> bool:
        return self.time_left_s() > 0 or self.best is None

    def _simulated_choice(self, choice: StrategyChoice, cluster: Cluster, plan: Plan) -> Simulated:
        scored = self._simulated(plan, cluster)
        return Simulated(inf if scored is None else self._kept(choice.strategy, scored), scored is not None)

    def _kept(self, name: str, scored: ScoredPlan) -> float:
        if name not in self.tally.best or scored.score < self.tally.best[name].score:
            self.tally.best[name] = scored
            self.watch(self.tally)
        return scored.score

    def _simulated(self, plan: Plan, cluster: Cluster) -> ScoredPlan | None:
        """None where it does not fit. Raises InputError where it cannot be."""
        report = step_report(self.profile, cluster, plan, runtime=self.step.runtime)
        self.tally.simulated += 1
        if not report.fits:
            self.tally.too_large += 1
            return None
        return ScoredPlan(plan=plan, cluster=cluster, report=report, score=self.objective.score(report))

    def _ask(self) -> bool:
        """Strategies that search by themselves, again with twice the effort and another seed while there is time."""
        effort = min(1.0, max(self.time_left_s() / FULL_EFFORT_S, LEAST_EFFORT))
        for number in count():
            before_s, before = self.time_left_s(), self.tally.simulated
            if not self._ask_all(effort * 2**number, self.seed + number):
                return number > 0
            taken_s = before_s - self.time_left_s()
            none_made = self.tally.simulated == before  # nor would more effort make one
            if none_made or self._is_sure() or not 0 < _TIMES_LONGER * taken_s < self.time_left_s():
                return True
        return True

    def _ask_all(self, effort: float, seed: int) -> bool:
        """Whether time was left for all of them."""
        for cluster, choice in self._of_effort():
            if not self._goes_on():
                return False
            own = {"seed": seed, "effort": effort, "progress": self._stop_if_spent, **choice.own}
            try:
                scored = self._simulated(replace(choice, own=own).plan(self.profile, cluster), cluster)
            except (InputError, MissingExtraError):
                self.tally.infeasible += 1
                continue
            if scored is not None:
                self._kept(choice.strategy, scored)
        return True

    def _stop_if_spent(self, text: str) -> None:
        """Strategies that search by themselves say how far they are after every plan."""
        if not self._goes_on():
            raise TimeSpent

    def _of_effort(self) -> Iterator[tuple[Cluster, StrategyChoice]]:
        for cluster, name in product(self._clusters, self.names):
            if "effort" in options(name):
                yield from ((cluster, choice) for choice in self._choices(name, cluster))

    def _choices(self, name: str, cluster: Cluster) -> Iterator[StrategyChoice]:
        return filter(self.wanted, choices(name, self.profile, cluster, self.step))

    def _anneal(self) -> None:
        """Change the best plans until the time is spent; those alone whose layers may be placed one by one."""
        cluster = self.best.cluster if self.best else self._clusters[0]
        plain = [
            Scored(plan=each.plan, score=each.score)
            for each in self.tally.best.values()
            if each.cluster is cluster and not each.plan.recomputed and each.plan.exchange == "messages"
        ]

        def score(plan: Plan) -> float | None:
            try:
                scored = self._simulated(plan, cluster)
            except (InputError, StuckError):  # of a schedule with other stages
                return None
            if scored is not None and self.best is not None and scored.score < self.best.score * (1 - SURE):
                self._kept(plan.strategy, replace(scored, refined=True))
            return None if scored is None else scored.score

        annealing = Annealing(self.profile, cluster, fixed=self.step.microbatches is not None, seed=self.seed)
        for _ in annealing.rounds(plain, score) if plain else ():
            if self._is_sure() or self.time_left_s() <= 0:
                return

    def _is_sure(self) -> bool:
        return self.best is not None and self.best.score <= self.bound * (1 + SURE)


def _parts(cluster: Cluster) -> list[Cluster]:
    """The cluster, and its first devices by halves."""
    counts = [cluster.workers]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return [cluster, *(take(cluster, count) for count in counts[1:])]
