"""Local search over whole layers: runs of layers that are placed alike take over what others have, while it gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from partitioners._judge import Judge
from partitioners._strongest import with_microbatches
from simulator.errors import ShardscopeError
from simulator.plan import Plan, Sharding
from simulator.workload import Profile


def improve(judge: Judge, pool: Sequence[Plan], *, patience: int, microbatches: bool) -> None:
    """Change the judge's best plan step by step, each change kept if it is better.

    pool: plans whose placements may be taken over, layer by layer. microbatches: whether their number may change. Ends
    after `patience` changes in a row without a gain, when no change is left, or when the budget is spent.
    """
    failures, tried = 0, set[tuple[object, ...]]()
    while judge.best is not None:
        here = judge.best
        for plan in _neighbours(judge.profile, here.plan, pool, microbatches):
            if failures >= patience or judge.budget <= 0:
                return
            key = (plan.microbatches, plan.schedule, *((p.degrees, p.devices) for p in plan.placements.values()))
            if key in tried:
                continue
            tried.add(key)
            try:
                gains = judge.consider(replace(plan, strategy=""), "a local change") is judge.best
            except ShardscopeError:
                continue
            failures = 0 if gains else failures + 1
            if gains:
                break
        else:
            return


def _neighbours(profile: Profile, plan: Plan, pool: Sequence[Plan], microbatches: bool) -> Iterator[Plan]:
    """Plans that differ in one run of layers, its border, or the number of micro-batches."""
    for factor in (2.0, 0.5) if microbatches else ():
        changed = with_microbatches(plan, factor)
        if changed is not None:
            yield changed
    names = [layer.name for layer in profile.layers]
    runs = [list(run) for _, run in groupby(names, key=lambda name: plan.placements[name])]
    for before, run, after in zip([[], *runs], runs, [*runs[1:], []], strict=False):
        for like, border in ((before[-1:], run[:1]), (after[:1], run[-1:])):
            if like:
                yield _with(plan, dict.fromkeys(border, plan.placements[like[0]]))
                yield _with(plan, dict.fromkeys(run, plan.placements[like[0]]))
        for other in pool:
            yield _with(plan, {name: other.placements[name] for name in run})


def _with(plan: Plan, placements: Mapping[str, Sharding]) -> Plan:
    return replace(plan, placements={**plan.placements, **placements})
