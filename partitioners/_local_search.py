"""Local search: layers in a row are placed another way as long as that promises, then simulates, a shorter step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from partitioners._judge import Judge, Verdict
from partitioners._layer_groups import GroupCut, cuts, device_blocks, layer_groups
from partitioners._loads import LoadTables, PlanLoads
from partitioners._strongest import plan_allows
from partitioners._window_bounds import NONE, Library, Window, window_of
from simulator.errors import ShardscopeError
from simulator.plan import Plan

_TASKS_PER_BOUND, _TASKS_PER_PROMISE, _TASKS_PER_LOOKUP = 0.02, 0.5, 20
"""For each layer a bound, and a promise, take as long as simulating so many tasks, and so does a new look-up."""
_SLACK = 1.02
"""A change after which the plan promises a longer step than before times this is not simulated."""
_GAIN = 1e-3
"""The share of a promise that a step of a descent has to save."""
_FOR_DESCENTS = 0.4
"""Of the budget at hand."""
_ON_THE_WAY = 12
"""Plans of a descent, the last ones, that are simulated."""
_STARTS = 2
"""Plans that are changed at most."""
_PROMISES, _KEPT = 8, 3
"""Changes of a window, those of the least bounds, of which the promise is worked out, and of these that are kept."""


class LocalSearch:
    """Goes from plans to what promises more, then simulates what promised most on the way.

    microbatches: whether their number may change. pool: plans whose placements may be taken over, layer by layer.
    """

    def __init__(self, judge: Judge, pool: Sequence[Plan], microbatches: bool) -> None:
        self._judge, self._pool, self._microbatches = judge, pool, microbatches
        self._profile = judge.profile
        self._tables = LoadTables(judge.profile, judge.cluster, judge.runtime)
        self._groups = layer_groups(judge.profile)
        index = judge.profile.index
        of_groups = [[index[name] for name in group] for group in self._groups]
        self._windows = [
            window_of(self._tables.inputs, [layer for i in range(*ends) for layer in of_groups[i]])
            for ends in _windows(len(of_groups))
        ]
        self._ways: dict[GroupCut, tuple[int, ...]] = {}
        self._libraries: dict[tuple[int, bool], Library] = {}
        self._seen: set[tuple[float, float]] = set()

    def refine(self, start: Verdict, patience: int, least_budget: float) -> None:
        """Simulate changes that promise more than the plan by now, the most promising first, and keep each that gains.

        It ends when `patience` in a row fail, when none is left, or at `least_budget`: tasks that are left to others.
        """
        best, failures, gained = start, 0, True
        here = self._tables.of(start.plan)
        while gained:
            gained, promise_s = False, self._promise(here, [here.base.microbatches])[0]
            for change in self._promising_changes(here, promise_s, least_budget):
                after = self._tables.after(here, change)
                after_s, count = self._promise(after, self._counts(after))
                if after_s > promise_s * _SLACK or not self._is_new(after, after_s):
                    continue
                if failures >= patience or self._judge.budget <= least_budget:
                    return
                verdict = self._simulated(after, count)
                if verdict is None or not verdict.beats(best):
                    failures += 1
                    continue
                best, failures, gained = verdict, 0, True
                here = after if count == here.base.microbatches else self._tables.of(verdict.plan)
                promise_s = self._promise(here, [here.base.microbatches])[0]

    def descend(self, start: Verdict, least_budget: float) -> list[Verdict]:
        """Take, window after window, what promises the shortest step, as long as one gains; then simulate every plan on
        the way, since what promises most need not be shortest. The pool is left out: from it all ways lead to one."""
        here, way = self._tables.of(start.plan), list[tuple[PlanLoads, float]]()
        promise_s, gained = self._promise(here, [here.base.microbatches])[0], True
        while gained:
            gained = False
            for window in [*self._windows, *self._runs(here)]:
                if self._judge.budget <= least_budget:
                    break
                for after_s, change in self._best_of(here, window, promise_s, pool=False)[:1]:
                    if after_s < promise_s * (1 - _GAIN):
                        here, gained = self._tables.after(here, change), True
                        promise_s, count = self._promise(here, self._counts(here))
                        if count != here.base.microbatches:
                            here = self._tables.of(self._tables.plan_of(here, count))
                            promise_s, _ = self._promise(here, [count])
                        way.append((here, promise_s))
        new = [loads for loads, after_s in way[-_ON_THE_WAY:] if self._is_new(loads, after_s)]
        verdicts = [self._simulated(loads, loads.base.microbatches) for loads in new]
        return [verdict for verdict in verdicts if verdict is not None]

    def _promising_changes(self, here: PlanLoads, promise_s: float, least_budget: float) -> list[dict[int, int]]:
        """Changes after which the plan promises more, a few of each window, the most promising first."""
        promising: list[tuple[float, int, dict[int, int]]] = [(promise_s, 0, {})]  # other micro-batches alone
        for window in [*self._windows, *self._runs(here)]:
            if self._judge.budget <= least_budget:
                break
            promising += [
                (after_s, len(promising), change) for after_s, change in self._best_of(here, window, promise_s)
            ]
        return [change for _, _, change in sorted(promising, key=lambda each: each[:2])]

    def _best_of(
        self, here: PlanLoads, window: Window, promise_s: float, pool: bool = True
    ) -> list[tuple[float, dict[int, int]]]:
        """The changes of a window that promise least, and no more than about `promise_s`: (seconds, change)."""
        library, counts = self._library(here, pool), self._counts(here)
        lookups, promising, limit_s = self._tables.lookups, list[tuple[float, dict[int, int]]](), promise_s * _SLACK
        changes, bounds_s = library.bounds_s(here, window, counts, limit_s)
        self._judge.budget -= _TASKS_PER_BOUND * len(here.passes) * library.size
        for change, bound_s in zip(changes[:_PROMISES], bounds_s.min(axis=1).tolist(), strict=False):
            if len(promising) >= _KEPT and bound_s >= sorted(each[0] for each in promising)[_KEPT - 1]:
                break
            after = self._tables.after(here, change)
            after_s, _ = self._promise(after, self._counts(after))
            if after_s < limit_s:
                promising.append((after_s, change))
        self._judge.budget -= _TASKS_PER_LOOKUP * (self._tables.lookups - lookups)
        return sorted(promising, key=lambda each: each[0])[:_KEPT]

    def _promise(self, loads: PlanLoads, counts: Sequence[int]) -> tuple[float, int]:
        """The shortest step that loads promise with one of these numbers of micro-batches, and that number."""
        self._judge.budget -= _TASKS_PER_PROMISE * len(loads.passes)
        promises_s = self._tables.promises_s(loads, counts)
        least = int(np.argmin(promises_s))
        return float(promises_s[least]), counts[least]

    def _is_new(self, loads: PlanLoads, promise_s: float) -> bool:
        """Whether nothing that asks the same of everything was simulated before."""
        key = round(promise_s, 12), round(float(loads.passes_s.sum() + loads.links_s.sum()), 12)
        new = key not in self._seen
        self._seen.add(key)
        return new

    def _simulated(self, loads: PlanLoads, count: int) -> Verdict | None:
        plan = self._tables.plan_of(loads, count)
        if plan.schedule != "dataflow" and not plan_allows(plan):
            plan = replace(plan, schedule="dataflow")
        try:
            return self._judge.consider(plan, "a local change")
        except ShardscopeError:
            return None

    def _counts(self, loads: PlanLoads) -> list[int]:
        """Numbers of micro-batches by powers of two from that of the loads, of those that leave each part a sample."""
        own, base = loads.base.microbatches, loads.base
        if not self._microbatches or any(self._tables.shardings[number].samples for number in set(loads.numbers)):
            return [own]
        parts = max(self._tables.shardings[number].degrees[0] for number in set(loads.numbers))
        counts = [own << k for k in range(8)] + [own >> k for k in range(1, 8) if own % (1 << k) == 0]
        return [m for m in counts if base.batch_size % m == 0 and base.batch_size // m >= parts] or [own]

    def _library(self, here: PlanLoads, pool: bool) -> Library:
        """All ways to place the network on the devices in use or near them, and maybe those of the pool."""
        base = here.base
        library = self._libraries.setdefault((base.microbatches, pool), Library(self._tables, base))
        for plan in self._pool if pool else ():
            library.add([self._tables.number(plan.placements[layer.name]) for layer in self._profile.layers])
        sets = {self._tables.shardings[number].device_set for number in set(here.numbers)}
        for devices in device_blocks(sets, self._judge.cluster.workers):
            for cut in cuts(devices):
                if cut not in self._ways:
                    self._ways[cut] = self._way(cut, base.batch_size)
                if any(number != NONE for number in self._ways[cut]):
                    library.add(self._ways[cut])
        return library

    def _way(self, cut: GroupCut, samples: int) -> tuple[int, ...]:
        """The whole network cut so, group by group, with NONE for groups that cannot be."""
        numbers = [NONE] * len(self._profile.layers)
        for number, group in enumerate(self._groups):
            placed = cut.placements(self._profile, group, number, samples)
            for name, sharding in (placed or {}).items():
                numbers[self._profile.index[name]] = self._tables.number(sharding)
        return tuple(numbers)

    def _runs(self, here: PlanLoads) -> Iterator[Window]:
        """Layers in a row that are placed alike."""
        for _, run in groupby(range(len(here.numbers)), key=here.numbers.__getitem__):
            yield window_of(self._tables.inputs, list(run))


def _windows(count: int) -> list[tuple[int, int]]:
    """Of so many groups those in a row, from one to before another, that are placed anew together: all, halves and so
    on, each from several places, and all up to one or from one on; the longest first."""
    windows = {(0, at) for at in range(1, count)} | {(at, count) for at in range(1, count)}
    length = 1 << max(count - 1, 1).bit_length() >> 1
    while length:
        windows |= {(first, min(first + length, count)) for first in range(0, count, max(length // 2, 1))}
        length //= 2
    return sorted(windows, key=lambda ends: (ends[0] - ends[1], ends))


def improve(judge: Judge, starts: Sequence[Verdict], *, patience: int, microbatches: bool) -> None:
    """Change each of some plans while it gains, the shortest step first; what is better than all the judge remembers.

    Placements of one may be taken over by another. microbatches: whether their number may change.
    """
    search, verdicts = LocalSearch(judge, [verdict.plan for verdict in starts], microbatches), list(starts)
    whole, best_first = judge.budget, sorted(starts, key=_order)[:_STARTS]
    for number, start in enumerate(best_first):
        verdicts += search.descend(start, whole * (1 - _FOR_DESCENTS * (number + 1) / len(best_first)))
    best_first = sorted(verdicts, key=_order)[:_STARTS]
    for number, start in enumerate(best_first):
        search.refine(start, patience, judge.budget / 2 if number < len(best_first) - 1 else 0.0)


def _order(verdict: Verdict) -> tuple[float, float]:
    return verdict.excess_bytes, verdict.cost
