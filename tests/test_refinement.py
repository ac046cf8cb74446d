"""Which plans the local search descends from and changes further, with how much of the budget: by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
import pytest
from small_networks import chain, switched

from partitioners._judge.judge import Judge, Verdict
from partitioners._search.judged_plan import Judged, times_promised
from partitioners._search.loads import PlanLoads
from partitioners._search.refinement import _best_of_each, _improve, _to_refine
from simulator.plan import Plan, Sharding


def judge_of(best: float | None, budget: float = 1000.0) -> Judge:
    judge = Judge(profile=chain([1.0]), cluster=switched([1.0]))
    judge.best, judge.budget = None if best is None else verdict(0, best), budget
    return judge


def verdict(device: int, cost: float, microbatches: int = 1, excess_bytes: float = 0.0) -> Verdict:
    """Of a layer on that device."""
    plan = Plan(model="small", batch_size=64, microbatches=microbatches, placements={"a": Sharding(devices=(device,))})
    known: Any = None
    return Verdict(excess_bytes=excess_bytes, cost=cost, step_s=cost, plan=plan, graph=known, timeline=known)


def judged(numbers: int, cost: float, microbatches: int = 1) -> Judged:
    """A plan whose loads are those of these numbers of shardings."""
    none, own = np.zeros(0), verdict(numbers, cost, microbatches)
    loads = PlanLoads(base=own.plan, numbers=[numbers], passes=[], messages=[], passes_s=none, links_s=none)
    return Judged(verdict=own, loads=loads, excess={})


def test_what_is_changed_further_is_near_the_best_and_first_of_other_micro_batches() -> None:
    """At most three within 1.1 times the best: the shortest of each number of micro-batches, then the next ones."""
    some = [judged(0, 1.0), judged(1, 1.01), judged(2, 1.02, 2), judged(3, 1.03), judged(4, 1.1, 4), judged(5, 1.11, 8)]
    near = _to_refine(judge_of(1.0), some)
    assert [(each.loads.numbers[0], each.microbatches) for each in near] == [(0, 1), (2, 2), (4, 4)]
    near = _to_refine(judge_of(1.0), [some[5], some[3], some[1], judged(0, 1.05), some[0]])
    assert [each.verdict.cost for each in near] == [1.0, 1.01, 1.03]  # of the same loads the shorter one
    assert _to_refine(judge_of(0.5), some) == []
    assert len(_to_refine(judge_of(None), [judged(number, 9.0 + number) for number in range(5)])) == 3


def test_what_fits_comes_before_what_is_shorter() -> None:
    some = [verdict(0, 1.0, excess_bytes=9.0), verdict(1, 3.0), verdict(2, 2.0), verdict(0, 5.0), verdict(1, 1.0)]
    best = _best_of_each(some, lambda each: each, lambda each: each.plan.placements["a"].devices)
    assert [(each.plan.placements["a"].devices[0], each.cost) for each in best] == [(1, 1.0), (2, 2.0), (0, 5.0)]


@dataclass
class Search:
    """In place of a local search: what it was asked for."""

    judge: Judge
    started: list[tuple[int, int]] = field(default_factory=list)
    descended: list[tuple[int, int, float, bool]] = field(default_factory=list)
    taken_over: list[int] = field(default_factory=list)
    refined: list[tuple[int, int, float]] = field(default_factory=list)

    def judged(self, start: Verdict) -> list[Judged]:
        """With one micro-batch and with two, which take a little longer; it costs half a budget of 2000."""
        number = start.plan.placements["a"].devices[0]
        self.started.append((number, start.plan.microbatches))
        self.judge.budget = 1000.0
        return [judged(number, start.cost), judged(number, start.cost + 0.5, 2)]

    def descend(self, start: Judged, least_budget: float, *, free: bool = False) -> list[Judged]:
        self.descended.append((start.loads.numbers[0], start.microbatches, least_budget, free))
        return [judged(100 + start.loads.numbers[0], start.verdict.cost / 2, start.microbatches)]

    def take_over(self, plans: Sequence[Plan]) -> None:
        self.taken_over += [plan.placements["a"].devices[0] for plan in plans]

    def refine(self, start: Judged, patience: int, least_budget: float) -> None:
        self.refined.append((start.loads.numbers[0], patience, least_budget))
        self.judge.budget = 600.0


def test_where_the_local_search_descends_and_what_it_leaves_to_others() -> None:
    """Of ten placements the eight shortest, the shorter of two with the same; of those with one micro-batch and two the
    twelve shortest, and the two first again with any number. All descents may use 35 % of the budget, each as much as
    those before it left; what is changed further has equal parts of the rest."""
    judge = judge_of(5.0, 2000.0)
    search: Any = Search(judge)
    starts = [replace(verdict(number, 10.0 + number), graph=search) for number in range(9, -1, -1)]
    _improve(judge, search, [*starts, verdict(3, 20.0)], patience=7)
    assert search.started == [(number, 1) for number in range(8)]
    ranked = sorted((10.0 + number + 0.5 * (count == 2), number, count) for number in range(8) for count in (1, 2))
    expected = [(number, count, False) for _, number, count in ranked[:12]]
    expected += [(number, count, True) for _, number, count in ranked[:2]]
    assert [(number, count, free) for number, count, _, free in search.descended] == expected
    least = [1000 * (1 - 0.35 * (number + 1) / 14) for number in range(14)]
    assert [budget for _, _, budget, _ in search.descended] == pytest.approx(least)
    assert search.taken_over == [100, 100, 101]  # of 5.0, 5.25 with two micro-batches, and 5.5
    assert [(number, patience) for number, patience, _ in search.refined] == [(100, 7), (100, 7), (101, 7)]
    assert [budget for _, _, budget in search.refined] == pytest.approx([1000 * 2 / 3, 600 / 2, 0.0])


def test_without_a_budget_nothing_is_looked_at() -> None:
    judge = judge_of(None, 0.0)
    search: Any = Search(judge)
    _improve(judge, search, [verdict(0, 1.0)], patience=7)
    assert search == Search(judge)
    judge.budget = inf
    _improve(judge, search, [], patience=7)
    assert search == Search(judge)


def test_what_takes_no_time_is_promised_once() -> None:
    assert (times_promised(3.0, 2.0), times_promised(3.0, 0.0)) == (1.5, 1.0)
