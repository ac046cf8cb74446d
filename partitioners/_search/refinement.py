"""Refinement of plans: the local search changes the best, annealing shakes them, in turn while a round gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import count
from math import inf
from typing import TypeVar

from partitioners._judge.judge import Judge, Verdict
from partitioners._search.annealing import Annealing, Scored, is_plain
from partitioners._search.judged_plan import Judged
from partitioners._search.local_search import LocalSearch
from simulator.errors import ShardscopeError
from simulator.plan import Plan

T = TypeVar("T")

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
_STARTS, _DESCENTS, _FREE = 8, 12, 2
"""Plans of different placements that the local search starts from at most, the shortest steps first; of these, with
more and fewer micro-batches, those that it descends from; and those from which once more, to any number of them. The
shortest is seldom the best start."""
_REFINED, _NEAR = 3, 1.1
"""Of what it comes to, so many that are changed further at most, and by how much their steps may exceed the best."""


def refine(judge: Judge, starts: Iterable[Verdict], effort: float, *, microbatches: bool, seed: int) -> None:
    """Change the starts that are near the best, then anneal them, and again while a round gains and budget is left.

    microbatches: whether their number may change. The judge remembers what is better.
    """
    near = [each for each in starts if judge.is_near(each.cost) and is_plain(each.plan)]
    search, changed = LocalSearch(judge, microbatches), near
    for number in count():
        _improve(judge, search, changed, patience=round(_PATIENCE * effort))
        before, left = judge.best, judge.budget
        judge.grant(_ANNEALED_TASKS * effort)
        _anneal(judge, near, fixed=not microbatches, seed=seed + number)
        judge.grant(left)
        best = judge.best
        if best is None or before is None or best.cost >= before.cost * (1 - _GAIN) or left <= 0:
            break
        changed = [best] if is_plain(best.plan) else []


def _improve(judge: Judge, search: LocalSearch, starts: Sequence[Verdict], *, patience: int) -> None:
    """Descend from the starts, then change what that comes to while it gains.

    Placements of one may be taken over by another.
    """
    if judge.budget <= 0:
        return
    placed = _best_of_each(starts, lambda each: each, lambda each: tuple(each.plan.placements.items()))[:_STARTS]
    judged = [each for start in placed for each in search.judged(start)]
    judged = _best_of_each(judged, _verdict, _loads)[:_DESCENTS]
    whole = judge.budget  # what the ways to cut the network ask for is known by now
    descents = [(start, False) for start in judged] + [(start, True) for start in judged[:_FREE]]
    reached = list(judged)
    for number, (start, free) in enumerate(descents):
        least = whole * (1 - _FOR_DESCENTS * (number + 1) / len(descents))
        reached += search.descend(start, least, free=free)
    refined = _to_refine(judge, reached)
    search.take_over([each.verdict.plan for each in refined])
    for number, each in enumerate(refined):
        search.refine(each, patience, judge.budget * (1 - 1 / (len(refined) - number)))


def _to_refine(judge: Judge, reached: Iterable[Judged]) -> list[Judged]:
    """Of what is near the best, the best of each number of micro-batches, and then the next ones."""
    limit = inf if judge.best is None else _NEAR * judge.best.cost
    ranked, before = list[tuple[int, Judged]](), Counter[int]()
    for each in _best_of_each(reached, _verdict, _loads):
        if each.verdict.cost <= limit:
            ranked.append((before[each.microbatches], each))
            before[each.microbatches] += 1
    return [each for _, each in sorted(ranked, key=lambda entry: entry[0])[:_REFINED]]


def _loads(judged: Judged) -> Hashable:
    """Plans with the same of it ask for the same."""
    return judged.microbatches, *judged.loads.numbers


def _best_of_each(some: Iterable[T], verdict: Callable[[T], Verdict], kind: Callable[[T], Hashable]) -> list[T]:
    """The best of each kind, the best of all first."""
    best: dict[Hashable, T] = {}
    for each in sorted(some, key=lambda each: _order(verdict(each))):
        best.setdefault(kind(each), each)
    return list(best.values())


def _verdict(judged: Judged) -> Verdict:
    return judged.verdict


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
