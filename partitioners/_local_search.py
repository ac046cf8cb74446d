"""Local search: layers in a row are cut or placed another way, as what that promises, then its simulation, is shorter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

import numpy as np

from partitioners._judge import Judge, Verdict
from partitioners._layer_groups import GroupCut, cuts, device_blocks, layer_groups
from partitioners._loads import LoadTables, PlanLoads
from simulator.errors import ShardscopeError
from simulator.plan import Plan, Sharding

_TASKS_PER_LAYER, _TASKS_PER_LOOKUP = 1, 60
"""What a plan promises takes as long as simulating so many tasks for each layer; so does what was not known before."""
_GAIN = 1e-3
"""The share of a promise that a change has to save."""
_SLACK = 1.02
"""A plan whose promise is longer than the best step times this is not simulated: few steps are below their promise."""
_STARTS = 3
"""Plans that are changed at most."""
_SUMMED = 4
"""Groups in a row, at most, that are cut into terms of sums."""

Change = Mapping[str, Sharding]
"""New placements of some layers."""


class LocalSearch:
    """Changes plans step by step: as long as they promise more, then as long as a change shortens the simulated step.

    microbatches: whether their number may change. pool: plans whose placements may be taken over, layer by layer.
    """

    def __init__(self, judge: Judge, pool: Sequence[Plan], microbatches: bool) -> None:
        self._judge, self._pool, self._microbatches = judge, pool, microbatches
        self._profile, self._workers = judge.profile, judge.cluster.workers
        self._tables = LoadTables(judge.profile, judge.cluster, judge.runtime)
        self._groups = layer_groups(judge.profile)
        self._seen: dict[tuple[float, float], None] = {}
        self._promising: list[tuple[float, int, PlanLoads, int]] = []

    def descend(self, plan: Plan) -> None:
        """Go on from a plan to whatever promises the shortest step of all changes of a window, window after window."""
        here = self._tables.of(plan)
        best_s, _ = self._promise(here, None)
        gained = True
        while gained and self._judge.budget > 0:
            gained = False
            for changes in self._neighbourhoods(here):
                if self._judge.budget <= 0:
                    break
                nearest = None
                for change in changes:
                    after = self._after(here, change)
                    promise_s, count = self._promise(after, best_s)
                    if promise_s < best_s * (1 - _GAIN):
                        best_s, nearest = promise_s, (after, count)
                if nearest is not None:
                    gained = True
                    here = self._tables.of(self._tables.plan_of(*nearest))

    def simulate(self, patience: int) -> bool:
        """Simulate what promises most, until so many in a row fail; whether any was better than all before."""
        failures, gained = 0, False
        while self._promising and failures < patience and self._judge.budget > 0:
            promise_s, _, loads, count = heappop(self._promising)
            best = self._judge.best
            if best is not None and not best.excess_bytes and promise_s > _SLACK * best.step_s:
                break
            try:
                verdict = self._judge.consider(self._plan(loads, count), "a local change")
            except ShardscopeError:
                continue
            failures, gained = (0, True) if verdict is self._judge.best else (failures + 1, gained)
        return gained

    def _plan(self, loads: PlanLoads, count: int) -> Plan:
        plan = self._tables.plan_of(loads, count)
        return plan

    def _after(self, loads: PlanLoads, change: Change) -> PlanLoads:
        known = len(self._tables.known)
        after = self._tables.after(loads, change)
        self._judge.budget -= _TASKS_PER_LOOKUP * (len(self._tables.known) - known)
        return after

    def _promise(self, loads: PlanLoads, best_s: float | None) -> tuple[float, int]:
        """The shortest step that loads promise and its number of micro-batches; what promises more than before is kept
        to be simulated."""
        own = loads.base.microbatches
        floor_s = self._tables.floor_s(loads)
        if best_s is not None and floor_s > best_s * 1.05:
            return floor_s, own
        self._judge.budget -= _TASKS_PER_LAYER * len(loads.layers)
        counts = self._counts(loads)
        promises_s = self._tables.promises_s(loads, counts)
        least = int(np.argmin(promises_s))
        promise_s, count = float(promises_s[least]), counts[least]
        key = round(promise_s, 12), round(float(loads.total_s.sum()), 12)
        if key not in self._seen and (best_s is None or promise_s < best_s * 1.05):
            self._seen[key] = None
            heappush(self._promising, (promise_s, len(self._seen), loads, count))
        return promise_s, count

    def _counts(self, loads: PlanLoads) -> list[int]:
        own, base = loads.base.microbatches, loads.base
        if not self._microbatches:
            return [own]
        parts = self._tables.parts(loads)
        halves = [own << k if k >= 0 else own >> -k for k in range(-7, 8)]
        fitting = [m for m in halves if m and base.batch_size % m == 0 and base.batch_size // m >= parts]
        return fitting or [own]

    def _neighbourhoods(self, loads: PlanLoads) -> Iterator[list[Change]]:
        """Changes, those of the same layers together: other cuts of layers in a row, longest first, and runs placed as
        their neighbours or as another plan has them."""
        placements = self._tables.plan_of(loads, loads.base.microbatches).placements
        count = len(self._groups)
        sets = {sharding.device_set for sharding in placements.values()}
        blocks = device_blocks(sets, self._workers)
        ways = [cut for devices in blocks for cut in cuts(devices)]
        for window in _windows(count):
            short = len(window) <= _SUMMED
            yield list(self._recut(window, [way for way in ways if short or way.terms == "none"], loads, placements))
        names = [layer.name for layer in self._profile.layers]
        runs = [list(run) for _, run in groupby(names, key=lambda name: placements[name])]
        for before, run, after in zip([[], *runs], runs, [*runs[1:], []], strict=False):
            changes: list[Change] = []
            for like, border in ((before[-1:], run[:1]), (after[:1], run[-1:])):
                if like:
                    changes.append(dict.fromkeys(border, placements[like[0]]))
                    changes.append(dict.fromkeys(run, placements[like[0]]))
            changes += [{name: other.placements[name] for name in run} for other in self._pool]
            yield changes

    def _recut(
        self, window: range, ways: Sequence[GroupCut], loads: PlanLoads, placements: Mapping[str, Sharding]
    ) -> Iterator[Change]:
        groups = [self._groups[i] for i in window]
        for way in ways:
            changed = way.placements(self._profile, groups, loads.base.microbatch_size)
            if changed is not None and any(placements[name] != sharding for name, sharding in changed.items()):
                yield changed


def _windows(count: int) -> list[range]:
    """Of so many groups those in a row that are changed together: all, halves and so on, each from several places."""
    windows = {range(0, count): None}
    length = 1 << max(count - 1, 0).bit_length()
    while length:
        stride = max(length // 2, 1)
        for first in range(0, count, stride):
            windows[range(first, min(first + length, count))] = None
        length //= 2
    for at in range(1, count):
        windows[range(0, at)] = None
        windows[range(at, count)] = None
    return sorted(windows, key=lambda window: -len(window))


def improve(judge: Judge, starts: Sequence[Verdict], *, patience: int, microbatches: bool) -> None:
    """Change each of some plans while it gains, the shortest step first; what is better than all the judge remembers.

    Placements of one may be taken over by another. microbatches: whether their number may change.
    """
    search = LocalSearch(judge, [verdict.plan for verdict in starts], microbatches)
    for start in sorted(starts, key=lambda verdict: (verdict.excess_bytes, verdict.cost))[:_STARTS]:
        search.descend(start.plan)
    while search.simulate(patience) and judge.best is not None:
        search.descend(judge.best.plan)
