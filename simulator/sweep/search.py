"""Search for the best plan: every strategy, pruned by lower bounds, then local search from the best plans.

1. Every strategy, cheapest first, with a few settings of its own options.
2. A plan whose parameters alone exceed a device's memory, or whose lower bound is not below the best score so far, is
   dropped before it is simulated.
3. The best plans of different strategies are refined in turn: more or fewer micro-batches, larger or smaller gradient
   buckets, and blocks of layers moved to where their neighbours are, for as long as that gains.

The best so far is a valid plan at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import inf
from typing import Any

from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import InputError, MissingExtraError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.topologies import take
from simulator.plan import Plan, StepSettings
from simulator.report.memory import peak_bytes
from simulator.report.metrics import Report, measure
from simulator.sweep.evaluate import MakePlan
from simulator.sweep.objectives import Objective
from simulator.workload import Profile

REFINED = 3
"""How many of the best plans, of different strategies, are refined."""
FULL_EFFORT_S = 60.0
"""A strategy with an option of effort gets the share of its usual effort that the time left is of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPlan:
    """A simulated plan that fits into memory, on the first devices of the cluster (all but for the objective cost)."""

    plan: Plan
    cluster: Cluster
    report: Report
    score: float
    refined: bool = False


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a search did: how many plans it simulated and dropped, and the best of each strategy."""

    simulated: int = 0
    dropped_by_bound: int = 0
    too_large: int = 0
    infeasible: int = 0
    best: dict[str, ScoredPlan] = field(default_factory=dict)
    complete: bool = False


class PlanSearch:
    """A search over plans of `profile` on `cluster` for a step, made by `make_plan` (see SweepContext).

    options: of every strategy to try, by name, with their defaults.
    """

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        objective: Objective,
        *,
        step: StepSettings,
        make_plan: MakePlan,
        options: Mapping[str, Mapping[str, object]],
        time_left_s: Callable[[], float],
        seed: int = 0,
        watch: Callable[[Tally], None] = lambda tally: None,
    ) -> None:
        self.tally = Tally()
        self._profile, self.objective, self._step, self._seed = profile, objective, step, seed
        self._make_plan, self._options = make_plan, options
        self._time_left_s, self._watch = time_left_s, watch
        self._clusters = _parts(cluster) if objective.fewer_devices else [cluster]

    @property
    def best(self) -> ScoredPlan | None:
        """The best plan so far."""
        return min(self.tally.best.values(), key=lambda scored: scored.score, default=None)

    @property
    def bound(self) -> float:
        """Lower bound on the score of every plan."""
        size, state = self._step.batch_size, self._step.optimizer_state
        return min(self.objective.bound(self._profile, c, size, state) for c in self._clusters)

    def run(self) -> None:
        """Search until nothing is left to try or `time_left_s` is at most 0."""
        for name, cluster in product(self._by_effort(), self._clusters):
            for settings in self._settings(name, cluster):
                if self._time_left_s() <= 0:
                    return
                self._try_settings(name, cluster, settings)
        self.tally.complete = self._refine()

    def _by_effort(self) -> list[str]:
        """Strategies that search by themselves come last, when the best so far is already good."""
        return sorted(self._options, key=lambda name: ("effort" in self._options[name], name))

    def _settings(self, name: str, cluster: Cluster) -> Iterator[dict[str, Any]]:
        """The options of a strategy that are tried: few, because refining finds the rest."""
        known = self._options[name]
        grid: dict[str, list[object]] = {}
        if "microbatches" in known:
            several = max(m for m in range(1, 2 * cluster.workers + 1) if self._step.batch_size % m == 0)
            grid["microbatches"] = list(dict.fromkeys([known["microbatches"], several]))
        if "schedule" in known:
            grid["schedule"] = ["1f1b", "gpipe"]
        if "replicas" in known:
            grid["replicas"] = [False, True]
        for values in product(*grid.values()):
            yield dict(zip(grid, values, strict=True))

    def _try_settings(self, name: str, cluster: Cluster, settings: Mapping[str, Any]) -> None:
        """Keep the strategy's plan under these settings if it is its best so far."""
        effort = min(1.0, max(self._time_left_s() / FULL_EFFORT_S, 0.05))
        search = {"seed": self._seed, "effort": effort}
        known = {option: value for option, value in search.items() if option in self._options[name]}
        of_step = {option: settings[option] for option in ("microbatches", "schedule") if option in settings}
        own = {option: value for option, value in settings.items() if option not in of_step}
        try:
            step = replace(self._step, **of_step)
            plan = self._make_plan(name, self._profile, cluster, step, **known, **own)
        except (InputError, MissingExtraError):
            self.tally.infeasible += 1
            return
        candidate = self._judge(plan, cluster, self.best.score if self.best else inf, self._score(name))
        if candidate:
            self.tally.best[name] = candidate
            self._watch(self.tally)

    def _score(self, name: str) -> float:
        return self.tally.best[name].score if name in self.tally.best else inf

    def _judge(self, plan: Plan, cluster: Cluster, rival: float, own: float) -> ScoredPlan | None:
        """The plan simulated; None when it cannot be, does not fit, or its lower bound is at least `rival`.

        own: the score to be below; a plan that is not is not worth its report.
        """
        try:
            model = ShardedModel(self._profile, plan)
            graph = lower(model, cluster, self._step.runtime)
        except InputError:
            self.tally.infeasible += 1
            return None
        capacities = [inf if d.memory_bytes is None else d.memory_bytes for d in cluster.devices]
        if (graph.static_bytes > capacities).any():
            self.tally.too_large += 1
            return None
        if self.objective.floor(graph, cluster) >= rival:
            self.tally.dropped_by_bound += 1
            return None
        self.tally.simulated += 1
        timeline = simulate(graph, cluster, self._step.runtime)
        peaks = peak_bytes(graph, timeline, cluster)
        if (peaks > capacities).any():
            self.tally.too_large += 1
            return None
        score = self.objective.score(cluster, timeline, peaks)
        if score >= own:
            return None
        report = measure(model, cluster, graph, timeline, self._step.runtime)
        return ScoredPlan(plan=plan, cluster=cluster, report=report, score=score)

    def _refine(self) -> bool:
        """Improve the best plans of different strategies in turn; False when time ran out before none improved."""
        moving = sorted(self.tally.best, key=self._score)[:REFINED]
        while moving:
            for name in list(moving):
                if not self._improve(name):
                    moving.remove(name)
                if self._time_left_s() <= 0:
                    return False
        return True

    def _improve(self, name: str) -> bool:
        """Go through the neighbours of a strategy's best plan, moving to each that is better; whether any was."""
        gained = False
        for change in _changes(self._profile):
            if self._time_left_s() <= 0:
                break
            now = self.tally.best[name]
            plan = change(now.plan)
            candidate = None if plan is None else self._judge(plan, now.cluster, now.score, now.score)
            if candidate:
                self.tally.best[name] = replace(candidate, refined=True)
                self._watch(self.tally)
                gained = True
        return gained


Change = Callable[[Plan], Plan | None]
"""A neighbour of a plan, None where there is none."""


def _parts(cluster: Cluster) -> list[Cluster]:
    """The cluster, and its first devices by halves."""
    counts = [cluster.workers]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return [cluster, *(take(cluster, count) for count in counts[1:])]


def _changes(profile: Profile) -> Iterator[Change]:
    """Every way in which refining changes a plan."""
    for factor in (2.0, 0.5):
        yield partial(_with_microbatches, factor=factor)
    for factor in (4.0, 0.25):
        yield partial(_with_bucket, factor=factor)
    for block in _blocks(profile):
        for end in (block[0], block[-1]):
            yield partial(_moved, profile=profile, block=block, end=end)


def _with_microbatches(plan: Plan, factor: float) -> Plan | None:
    count = round(plan.microbatches * factor)
    return replace(plan, microbatches=count) if count and plan.batch_size % count == 0 else None


def _with_bucket(plan: Plan, factor: float) -> Plan:
    size_bytes = round(plan.synchronisation.bucket_bytes * factor)
    return replace(plan, synchronisation=replace(plan.synchronisation, bucket_bytes=size_bytes))


def _blocks(profile: Profile) -> list[list[int]]:
    """Positions of the layers, cut before every layer with parameters: what follows one is best kept with it."""
    blocks: list[list[int]] = []
    for position, layer in enumerate(profile.layers):
        if layer.parameter_bytes or not blocks:
            blocks.append([])
        blocks[-1].append(position)
    return blocks


def _moved(plan: Plan, profile: Profile, block: Sequence[int], end: int) -> Plan | None:
    """The plan with a block placed as the nearest layer beyond one of its ends that is placed otherwise."""
    step = -1 if end == block[0] else 1
    names = [layer.name for layer in profile.layers]
    beyond = names[:end][::-1] if step < 0 else names[end + 1 :]
    present = {plan.placements[names[position]] for position in block}
    other = next((plan.placements[name] for name in beyond if plan.placements[name] not in present), None)
    if other is None:
        return None
    return replace(plan, placements={**plan.placements, **{names[position]: other for position in block}})
