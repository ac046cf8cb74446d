"""Local search: layers in a row are cut or placed another way, and what promises a shorter step is simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from partitioners._judge import Judge, Verdict
from partitioners._layer_groups import LayerGroup, cuts, layer_groups
from partitioners._loads import LoadTables, PlanLoads
from partitioners._strongest import plan_allows, with_microbatches
from simulator.errors import ShardscopeError
from simulator.plan import Plan, Sharding

_WINDOWS = (1, 2, 3, 4, 6, 8, 12, 16)
"""How many groups of layers in a row are cut alike at a time."""
_TASKS_PER_PROMISE, _TASKS_PER_LOOKUP = 30, 200
"""What a plan promises, and a layer's loads that were not known before, take as long as simulating so many tasks."""
_FOR_PROMISES = 0.7
"""Of the budget at hand for what the changes of one plan promise."""
_SLACK = 1.02
"""A change after which the promised step is longer than before times this is not simulated."""
_STARTS = 2
"""Plans that are changed, each with half of the budget that is left, the last with all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """New placements of some layers, or `factor` times as many micro-batches."""

    placements: Mapping[str, Sharding] = field(default_factory=dict)
    factor: float = 1.0

    def of(self, plan: Plan) -> Plan | None:
        """The plan after it, None where it cannot be had; what is no longer made of stages has no schedule."""
        changed = replace(plan, placements={**plan.placements, **self.placements}, strategy="")
        if self.factor != 1:
            return with_microbatches(changed, self.factor)
        return changed if plan.schedule == "dataflow" or plan_allows(changed) else replace(changed, schedule="dataflow")


@dataclass(slots=True, kw_only=True)
class LocalSearch:
    """Changes a plan step by step, each change kept if the simulated step is shorter.

    here: the plan by now. pool: plans whose placements may be taken over, layer by layer. microbatches: whether their
    number may change. patience: how many simulated changes in a row may fail. least_budget: tasks to leave to others.
    """

    judge: Judge
    here: Verdict
    pool: Sequence[Plan]
    microbatches: bool
    patience: int
    least_budget: float
    tables: LoadTables
    groups: list[LayerGroup]
    tried: set[tuple[object, ...]] = field(default_factory=set)

    def improve(self) -> None:
        """Go on until `patience` changes in a row fail, no change is left, or the budget is spent."""
        failures, gained = 0, True
        while gained:
            gained = False
            for change in self._most_promising_first(self.here.plan):
                if failures >= self.patience or self.judge.budget <= self.least_budget:
                    return
                gains = self._gains(self.here.plan, change)
                if gains is not None:
                    failures, gained = (0, True) if gains else (failures + 1, gained)

    def _most_promising_first(self, plan: Plan) -> list[PlanChange]:
        """The changes of a plan by what the plan then promises, of those that ask the same of everything the first."""
        loads, promised = self.tables.of(plan), dict[tuple[float, float], PlanChange]()
        least = self.least_budget + (1 - _FOR_PROMISES) * (self.judge.budget - self.least_budget)
        for change in self._changes(plan):
            changed = change.of(plan)
            if changed is not None and self.judge.budget > least:
                promised.setdefault(self._promise(loads, changed, change), change)
        return [promised[promise] for promise in sorted(promised)]

    def _promise(self, loads: PlanLoads, changed: Plan, change: PlanChange) -> tuple[float, float]:
        """Seconds that a plan promises after a change, and of all its loads together, which tell plans apart."""
        known = len(self.tables.known)
        after = self.tables.of(changed) if change.factor != 1 else self.tables.after(loads, changed, change.placements)
        self.judge.budget -= _TASKS_PER_PROMISE + _TASKS_PER_LOOKUP * (len(self.tables.known) - known)
        return round(self.tables.promise_s(after), 12), round(float(after.total_s.sum()), 12)

    def _gains(self, plan: Plan, change: PlanChange) -> bool | None:
        """Whether the plan is better after a change, None where that is not simulated."""
        changed = change.of(plan)
        if changed is None:
            return None
        loads = self.tables.of(plan)
        promise = self._promise(loads, changed, change)
        if (changed.schedule, promise) in self.tried or promise[0] > _SLACK * self.tables.promise_s(loads):
            return None
        self.tried.add((changed.schedule, promise))
        try:
            verdict = self.judge.consider(changed, "a local change")
        except ShardscopeError:
            return None
        if verdict.beats(self.here):
            self.here = verdict
            return True
        return False

    def _changes(self, plan: Plan) -> Iterator[PlanChange]:
        """More or fewer micro-batches, other cuts of layers in a row, and runs placed as their neighbours or others."""
        if self.microbatches:
            yield PlanChange(factor=2.0)
            yield PlanChange(factor=0.5)
        yield from self._recut(plan)
        names = [layer.name for layer in self.judge.profile.layers]
        runs = [list(run) for _, run in groupby(names, key=lambda name: plan.placements[name])]
        for before, run, after in zip([[], *runs], runs, [*runs[1:], []], strict=False):
            for like, border in ((before[-1:], run[:1]), (after[:1], run[-1:])):
                if like:
                    yield PlanChange(placements=dict.fromkeys(border, plan.placements[like[0]]))
                    yield PlanChange(placements=dict.fromkeys(run, plan.placements[like[0]]))
            for other in self.pool:
                yield PlanChange(placements={name: other.placements[name] for name in run})

    def _recut(self, plan: Plan) -> Iterator[PlanChange]:
        """Groups in a row cut alike on all devices, or those that a layer is on; of a length what sends most first."""
        profile, workers = self.judge.profile, tuple(range(self.judge.cluster.workers))
        sets = {placement.device_set for placement in plan.placements.values()} | {workers}
        ways = [cut for devices in sorted(sets, key=lambda each: (-len(each), each)) for cut in cuts(devices)]
        sent_s = self.tables.sent_s(self.tables.of(plan))
        of_group = [sum(sent_s[profile.index[name]] for name in group) for group in self.groups]
        windows = [range(i, i + n) for n in _WINDOWS for i in range(len(self.groups) - n + 1)]
        for window in sorted(windows, key=lambda each: (len(each), -sum(of_group[i] for i in each))):
            for cut in ways:
                placements = cut.placements(profile, [self.groups[i] for i in window], plan.microbatch_size)
                if placements is not None and any(plan.placements[name] != p for name, p in placements.items()):
                    yield PlanChange(placements=placements)


def improve(judge: Judge, starts: Sequence[Verdict], *, patience: int, microbatches: bool) -> None:
    """Change each of some plans while it gains, the shortest step first; what is better than all the judge remembers.

    Placements of one may be taken over by another. microbatches: whether their number may change.
    """
    tables = LoadTables(profile=judge.profile, cluster=judge.cluster, runtime=judge.runtime)
    groups, ways = layer_groups(judge.profile), [verdict.plan for verdict in starts]
    best_first = sorted(starts, key=lambda verdict: (verdict.excess_bytes, verdict.cost))[:_STARTS]
    for number, start in enumerate(best_first):
        LocalSearch(
            judge=judge,
            here=start,
            pool=ways,
            microbatches=microbatches,
            patience=patience,
            least_budget=judge.budget / 2 if number < len(best_first) - 1 else 0.0,
            tables=tables,
            groups=groups,
        ).improve()
