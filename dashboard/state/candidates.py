"""The plans that a search tried, each in a few figures: what it moved, how long its step was, how balanced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

import numpy as np

from dashboard.state.flows import payload
from partitioners._judge import judge
from simulator.cluster import Cluster
from simulator.plan import Plan
from simulator.report.metrics import load_balance_ratio
from simulator.taskgraph import TaskGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One simulated plan: what made it, the bytes of its step, those between nodes, its step, its balance."""

    label: str
    total_bytes: float
    between_bytes: float
    step_s: float
    load_balance_ratio: float
    best: bool


_PAUSE_S, _SHARE = 1.5, 0.1
"""Seconds between two best plans that are told of, and the most of a search's time that telling may take."""


class SearchOverError(Exception):
    """A search has had its time. plan: the best so far."""

    def __init__(self, plan: Plan) -> None:
        super().__init__("the search has had its time")
        self.plan = plan


@contextmanager
def recorded_candidates(
    kept: list[Candidate], cluster: Cluster, within_s: float = inf, tell: Callable[[Plan], None] | None = None
) -> Iterator[None]:
    """Append every plan that a search simulates meanwhile to `kept`; after within_s raise SearchOverError in it.

    tell: is told of the best plan so far, now and then.
    """
    until_s, again_s = time.monotonic() + within_s, 0.0
    best: judge.Verdict | None = None
    announced: judge.Verdict | None = None

    def record(verdict: judge.Verdict, label: str, is_best: bool) -> None:
        nonlocal best, announced, again_s
        kept.append(_candidate(verdict.graph, cluster, label, verdict.step_s, is_best))
        if best is None or verdict.beats(best):
            best = verdict
        began_s = time.monotonic()
        if tell is not None and best is not announced and began_s >= again_s:
            announced = best
            tell(best.plan)
            again_s = began_s + max(_PAUSE_S, (time.monotonic() - began_s) / _SHARE)
        if time.monotonic() > until_s:
            raise SearchOverError(best.plan)

    before = judge.watching.set(record)
    try:
        yield
    finally:
        judge.watching.reset(before)


def _candidate(graph: TaskGraph, cluster: Cluster, label: str, step_s: float, best: bool) -> Candidate:
    inside, between = payload(graph, cluster).sum(axis=0).tolist()
    computes = ~graph.is_transfer
    loads = np.bincount(graph.device[computes], weights=graph.seconds[computes], minlength=cluster.workers)
    return Candidate(
        label=label or "a change of the best", total_bytes=inside + between, between_bytes=between, step_s=step_s,
        load_balance_ratio=load_balance_ratio(loads[: cluster.workers].astype(np.float64)), best=best,
    )  # fmt: skip
