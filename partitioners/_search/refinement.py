"""Refinement of plans: the local search changes the best, annealing shakes them, in turn while a round gains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from partitioners._judge.judge import Judge, Verdict
from partitioners._search.annealing import Annealing, Scored, is_plain
from partitioners._search.local_search import LocalSearch
from simulator.errors import ShardscopeError
from simulator.plan import Plan

_ANNEALED_TASKS = 400_000
"""So many tasks are simulated of plans that are annealed in a round, at effort 1."""
_TASKS_PER_CHANGE = 500
"""To make a change takes as long as simulating so many tasks."""
_PATIENCE = 96
"""Changes in a row that gain too little before the local search ends, at effort 1."""
_GAIN = 1e-3
"""The share of the step that a round of changes and annealing has to save for another."""
_FOR_DESCENTS = 0.35
"""Of the budget at hand."""
_STARTS = 2
"""Plans that the local search changes at most."""


def refine(judge: Judge, starts: Sequence[Verdict | None], effort: float, *, microbatches: bool, seed: int) -> None:
    """Change the starts that are near the best, then anneal them, and again while a round gains and budget is left.

    microbatches: whether their number may change. The judge remembers what is better.
    """
    near = [each for each in starts if each is not None and judge.is_near(each.cost) and is_plain(each.plan)]
    for number in count():
        before = judge.best
        _improve(judge, near, patience=round(_PATIENCE * effort), microbatches=microbatches)
        left = judge.budget
        judge.grant(_ANNEALED_TASKS * effort)
        _anneal(judge, near, fixed=not microbatches, seed=seed + number)
        judge.grant(left)
        best = judge.best
        if best is None or before is None or best.cost >= before.cost * (1 - _GAIN) or left <= 0:
            break
        near = [best, *near] if is_plain(best.plan) else near


def _improve(judge: Judge, starts: Sequence[Verdict], *, patience: int, microbatches: bool) -> None:
    """Change each of some plans while it gains, the shortest step first.

    Placements of one may be taken over by another. microbatches: whether their number may change.
    """
    if judge.budget <= 0:
        return
    search = LocalSearch(judge, microbatches)
    judged = [search.judged(start) for start in sorted(starts, key=_order)[:_STARTS]]
    whole = judge.budget  # what the ways to cut the network ask for is known by now
    best = []
    for number, start in enumerate(judged):
        least = whole * (1 - _FOR_DESCENTS * (number + 1) / len(judged))
        best.append(min([start, *search.descend(start, least)], key=lambda each: _order(each.verdict)))
    best.sort(key=lambda each: _order(each.verdict))
    search.take_over([*(start.plan for start in starts), *(each.verdict.plan for each in best)])
    for number, each in enumerate(best):
        search.refine(each, patience, judge.budget / 2 if number < len(best) - 1 else 0.0)


def _order(verdict: Verdict) -> tuple[float, float]:
    return verdict.excess_bytes, verdict.cost


def _anneal(judge: Judge, starts: Sequence[Verdict], *, fixed: bool, seed: int) -> None:
    """Anneal the best so far, and the starts, until the budget is spent; the judge remembers what is better."""
    fit = [each for each in (judge.best, *starts) if each is not None and is_plain(each.plan) and not each.excess_bytes]

    def score(plan: Plan) -> float | None:
        try:
            verdict = judge.consider(plan, "annealing")
        except ShardscopeError:
            return None
        return None if verdict.excess_bytes else verdict.cost

    annealing = Annealing(judge.profile, judge.cluster, fixed=fixed, seed=seed)
    for _ in annealing.rounds([Scored(plan=each.plan, score=each.cost) for each in fit], score) if fit else ():
        judge.budget -= _TASKS_PER_CHANGE
        if judge.budget <= 0:
            return
