"""Local search: layers in a row are placed another way as long as that promises, then simulates, a shorter step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import accumulate, groupby, pairwise
from math import log2

import numpy as np

from partitioners._judge.judge import Judge, Verdict
from partitioners._search.annealing import may_have_stages
from partitioners._search.judged_plan import Judged, LocalChange, times_promised
from partitioners._search.layer_groups import GroupCut, cuts, device_blocks, layer_groups
from partitioners._search.loads import LoadTables, PlanLoads
from partitioners._search.promises import promises_s
from partitioners._search.window_bounds import NONE, Library, Window, window_of, windows
from simulator.errors import ShardscopeError
from simulator.plan import Plan

_TASKS_PER_LOOKUP, _DEVICES = 150, 16
"""What a layer or its messages ask for, where that was not known before, takes as long as simulating so many tasks, on
up to so many devices; on more, pieces, senders and receivers each grow with them."""
_PER_WINDOW, _PER_PROMISE = 20, 2
"""So do bounds of a window and a promise, for each layer of the network."""
_SLACK = 1.06
"""A change after which the plan promises a longer step than before times this is not simulated."""
_GAIN = 1e-3
"""The share of a promise that a step of a descent has to save, and of a step that simulated changes have to."""
_FOR_PROMISES = 0.7
"""Of the budget at hand, for what the changes of one plan promise."""
_PROMISES, _KEPT = 12, 6
"""Changes of a window, those of the least bounds, of which the promise is worked out, and of these that are kept."""
_WAITING = 96
"""Changes of all windows that are kept: several times as many as are simulated before one of them gains."""


class LocalSearch:
    """Goes from plans to what promises more, then simulates what promised most on the way.

    microbatches: whether their number may change.
    """

    def __init__(self, judge: Judge, microbatches: bool) -> None:
        self._judge, self._microbatches = judge, microbatches
        self._profile = judge.profile
        self._tables = LoadTables(judge.profile, judge.cluster, judge.runtime)
        self._groups = layer_groups(judge.profile)
        index = judge.profile.index
        self._order = [index[name] for group in self._groups for name in group]
        starts = list(accumulate((len(group) for group in self._groups), initial=0))
        self._windows = [self._window(starts[a], starts[b]) for a, b in windows(len(self._groups))]
        self._ways: dict[GroupCut, tuple[int, ...]] = {}
        self._libraries: dict[int, Library] = {}
        self._seen: set[tuple[float, float]] = set()
        self._per_lookup = _TASKS_PER_LOOKUP * max(judge.cluster.workers / _DEVICES, 1.0) ** 3
        self._excess: dict[int, float] = {}
        self._known_counts: set[int] = set()  # of micro-batches: by powers of two from those of plans from elsewhere

    def judged(self, verdict: Verdict) -> list[Judged]:
        """A plan from elsewhere, itself and with twice and half as many micro-batches: all are simulated, also to
        compare with promises."""
        own = verdict.plan.microbatches
        loads = self._tables.of(self._in_shared_terms(verdict.plan))
        verdicts, self._excess = {own: verdict}, {}
        self._known_counts |= {own << k for k in range(8)} | {own >> k for k in range(8) if own % (1 << k) == 0}
        self._learn(own, verdict, self._promises_s(loads, [own])[0])
        for count in self._counts(loads, {2 * own, own // 2} - {own, 0}):
            other = self._simulated(loads, count)
            if other is not None:
                self._learn(count, other, self._promises_s(loads, [count])[0])
                verdicts[count] = other
        self._library(loads)
        return [Judged(verdict=each, loads=loads, excess=self._excess) for each in verdicts.values()]

    def _in_shared_terms(self, plan: Plan) -> Plan:
        """The plan with as many micro-batches as its loads are looked up for: one, so that plans share them."""
        uneven = any(sharding.samples for sharding in plan.placements.values())
        return plan if uneven or not self._microbatches else replace(plan, microbatches=1)

    def take_over(self, plans: Sequence[Plan]) -> None:
        """From now on changes may place layers as one of these plans does."""
        for plan in plans:
            library = self._libraries.get(self._in_shared_terms(plan).microbatches)
            if library is not None:
                library.add(tuple(self._tables.numbers(plan)))

    def refine(self, start: Judged, patience: int, least_budget: float) -> None:
        """Simulate changes that promise more than the plan by now, the most promising first, and keep each that gains.

        What a step takes over its promise is learned by number of micro-batches from the last simulated.
        It ends when `patience` in a row gain less than _GAIN together, when none is left, or at `least_budget`: tasks
        that are left to others.
        """
        here, fruitless, gained = start, 0, True
        before = start.verdict  # the first of those in a row
        own_s = self._promises_s(start.loads, [start.microbatches])[0]
        self._excess = start.excess | {start.microbatches: times_promised(start.verdict.step_s, own_s)}
        while gained:
            gained, waiting = False, self._promising_changes(here, least_budget)
            while waiting:
                change = min(waiting, key=self._likely_s)
                waiting.remove(change)
                after, count = self._tables.after(here.loads, change.numbers), change.microbatches
                after_s = self._promises_s(after, [count])[0]
                likely_s = after_s * self._excess_of(count)
                if likely_s > here.verdict.step_s * _SLACK or not self._is_new(after, after_s):
                    continue
                if fruitless >= patience or self._judge.budget <= least_budget:
                    return
                verdict = self._simulated(after, count)
                fruitless += 1
                if verdict is None or not verdict.beats(here.verdict):
                    if count != here.microbatches:
                        self._learn(count, verdict, after_s)
                else:
                    here, gained = Judged(verdict=verdict, loads=after, excess=self._excess), True
                    if verdict.excess_bytes < before.excess_bytes or verdict.cost <= before.cost * (1 - _GAIN):
                        fruitless, before = 0, verdict
                    self._excess[count] = times_promised(verdict.step_s, after_s)

    def descend(self, start: Judged, least_budget: float, *, free: bool = False) -> list[Judged]:
        """Take, window after window, what promises the shortest step with as many micro-batches, or where that is free
        with any number, as long as one gains and half the budget for it lasts; then simulate plans on the way, since
        what promises most need not be shortest."""
        here, count, way = start.loads, start.microbatches, list[tuple[PlanLoads, LocalChange]]()
        self._excess = start.excess
        counts = sorted(self._known_counts) if free else [count]
        likely_s, gained = start.verdict.step_s, True
        half = (self._judge.budget + least_budget) / 2
        while gained:
            gained, library = False, self._library(here)
            for window in [*self._windows, *self._runs(here)]:
                if self._judge.budget <= half:
                    break
                limit_s = likely_s * (1 - _GAIN)
                for change in self._best_of(library, here, count, window, limit_s, 1, counts):
                    here, count, gained = self._tables.after(here, change.numbers), change.microbatches, True
                    likely_s = change.promise_s * self._excess_of(count)
                    way.append((here, change))
        return self._simulated_on(way, start, least_budget)

    def _simulated_on(
        self, way: Sequence[tuple[PlanLoads, LocalChange]], start: Judged, least_budget: float
    ) -> list[Judged]:
        """The last plan of a way, then those half-way to where the step is shorter, while the budget for it lasts.

        The further from the start, the less a promise says; so after a plan that takes longer than the best of the way
        the turn lies before it, and after a better one around it.
        """
        judged, before, after = list[Judged](), 0, len(way) - 1
        best, at = start.verdict, after
        while before <= at <= after and self._judge.budget > least_budget:
            loads, change = way[at]
            verdict = self._simulated(loads, change.microbatches) if self._is_new(loads, change.promise_s) else None
            judged += [Judged(verdict=verdict, loads=loads, excess=start.excess)] if verdict else []
            if verdict is not None and verdict.beats(best):
                best, before = verdict, at + 1
            else:
                after = at - 1
            at = (before + after + 1) // 2
        return judged

    def _learn(self, count: int, verdict: Verdict | None, promise_s: float) -> None:
        if verdict is not None:
            self._excess[count] = times_promised(verdict.step_s, promise_s)

    def _excess_of(self, count: int) -> float:
        """What a step takes over its promise with so many micro-batches, or the nearest number that is known."""
        return self._excess[min(self._excess, key=lambda known: abs(log2(count / known)))]

    def _promising_changes(self, here: Judged, least_budget: float) -> list[LocalChange]:
        """Changes after which the plan promises more, a few of each window, those that likely take least.

        Short windows come first, of a length those that send most.
        """
        promising, limit_s = list[LocalChange](), here.verdict.step_s * _SLACK
        library = self._library(here.loads)
        least = least_budget + (1 - _FOR_PROMISES) * (self._judge.budget - least_budget)
        sent_s = self._tables.sent_s(here.loads)
        short = sorted(self._windows, key=lambda each: (len(each.layers), -sum(sent_s[i] for i in each.layers)))
        for window in [*self._runs(here.loads), *short]:
            if self._judge.budget <= least:
                break
            promising += self._best_of(
                library, here.loads, here.microbatches, window, limit_s, _KEPT, sorted(self._known_counts)
            )
            if len(promising) > _WAITING:
                promising = nsmallest(_WAITING, promising, key=self._likely_s)
                limit_s = self._likely_s(promising[-1])
        return promising

    def _likely_s(self, change: LocalChange) -> float:
        """What a step after the change takes, as far as is known."""
        return change.promise_s * self._excess_of(change.microbatches)

    def _best_of(
        self,
        library: Library,
        here: PlanLoads,
        microbatches: int,
        window: Window,
        limit_s: float,
        kept: int,
        asked: Sequence[int],
    ) -> list[LocalChange]:
        """So many changes of a window, those that likely take least and less than the limit; of each with the number of
        micro-batches, of those asked for, that takes least and, where several are kept, with this one."""
        lookups, likely = self._tables.lookups, list[tuple[float, LocalChange]]()
        excess = np.array([self._excess_of(count) for count in asked])
        for number, (numbers, bound_s) in enumerate(library.bounds_s(here, window, asked, excess, limit_s)):
            if number >= _PROMISES or (len(likely) >= kept and bound_s >= likely[kept - 1][0]):
                break
            after = self._tables.after(here, numbers)
            counts_after = self._counts(after, asked)
            if not counts_after:
                continue
            promised_s = self._promises_s(after, counts_after)
            steps_s = [s * self._excess_of(count) for s, count in zip(promised_s, counts_after, strict=True)]
            least = int(np.argmin(steps_s))
            for k in range(len(steps_s)):
                if steps_s[k] < limit_s and (k == least or (kept > 1 and counts_after[k] == microbatches)):
                    likely.append((steps_s[k], LocalChange(promised_s[k], numbers, counts_after[k])))
            likely.sort(key=lambda each: each[0])
        self._judge.budget -= _PER_WINDOW * len(self._order) + self._per_lookup * (self._tables.lookups - lookups)
        return [change for _, change in likely[:kept]]

    def _promises_s(self, loads: PlanLoads, counts: Sequence[int]) -> list[float]:
        """The step that loads promise with each of these numbers of micro-batches."""
        self._judge.budget -= _PER_PROMISE * len(self._order)
        promised_s: list[float] = promises_s(self._tables, loads, counts).tolist()
        return promised_s

    def _is_new(self, loads: PlanLoads, promise_s: float) -> bool:
        """Whether nothing that asks the same of everything was simulated before."""
        key = round(promise_s, 12), round(float(loads.passes_s.sum() + loads.links_s.sum()), 12)
        new = key not in self._seen
        self._seen.add(key)
        return new

    def _simulated(self, loads: PlanLoads, count: int) -> Verdict | None:
        plan = self._tables.plan_of(loads, count)
        if plan.schedule != "dataflow" and not may_have_stages(plan):
            plan = replace(plan, schedule="dataflow")
        try:
            return self._judge.consider(plan, "a local change")
        except ShardscopeError:
            return None

    def _counts(self, loads: PlanLoads, asked: Collection[int]) -> list[int]:
        """Of these numbers of micro-batches those that leave each part a sample."""
        shardings = [self._tables.shardings[number] for number in set(loads.numbers)]
        base, parts = loads.base, max(sharding.degrees[0] for sharding in shardings)
        if not self._microbatches or any(sharding.samples for sharding in shardings):
            return [count for count in (base.microbatches,) if count in asked]
        return [m for m in sorted(asked) if base.batch_size % m == 0 and base.batch_size // m >= parts]

    def _library(self, here: PlanLoads) -> Library:
        """All ways to place the network on the devices in use or near them, beside what it has."""
        base, lookups = here.base, self._tables.lookups
        library = self._libraries.setdefault(base.microbatches, Library(self._tables, base, self._order))
        sets = {self._tables.shardings[number].device_set for number in set(here.numbers)}
        for devices in device_blocks(sets, self._judge.cluster.workers):
            for cut in cuts(devices):
                if cut not in self._ways:
                    self._ways[cut] = self._way(cut, base.batch_size)
                if any(number != NONE for number in self._ways[cut]):
                    library.add(self._ways[cut])
        self._judge.budget -= self._per_lookup * (self._tables.lookups - lookups)
        return library

    def _way(self, cut: GroupCut, samples: int) -> tuple[int, ...]:
        """The whole network cut so, group by group, with NONE for groups that cannot be."""
        numbers = [NONE] * len(self._profile.layers)
        for group in self._groups:
            placed = cut.placements(self._profile, group, samples)
            for name, sharding in (placed or {}).items():
                numbers[self._profile.index[name]] = self._tables.number(sharding)
        return tuple(numbers)

    def _runs(self, here: PlanLoads) -> Iterator[Window]:
        """Layers in a row that are placed alike."""
        runs = groupby(self._order, key=here.numbers.__getitem__)
        for first, last in pairwise(accumulate((len(list(run)) for _, run in runs), initial=0)):
            yield self._window(first, last)

    def _window(self, first: int, last: int) -> Window:
        return window_of(self._tables.inputs, self._order, first, last)
