"""The strongest plans of every strategy: what a search starts from, and what its answer is compared with.

Every strategy may choose micro-batches, and a schedule or none; `layerwise` may look for the step instead of its sum,
stages may be fewer than devices and may have replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from partitioners import make_plan
from partitioners._judge.judge import Judge, Verdict
from partitioners._stages.stage_cuts import SCHEDULES, plan_allows, stage_plans
from simulator.errors import ShardscopeError
from simulator.plan import Plan, StepSettings

STRATEGIES = ("data", "owt", "layerwise", "pipeline", "model")
"""Those ahead whose plans are often near the best, so that the others need not all be simulated."""
_FEW_WORKERS = 8
"""Up to here a search gives layer-wise parallelism all four dimensions; beyond, their tables take seconds."""


def strongest(judge: Judge, step: StepSettings, name: str, *, effort: float = 1.0) -> Verdict | None:
    """The best of the plans of strategy `name` that the judge has budget for, None where it has none.

    effort: of the simulations for layer-wise parallelism. What the step says holds; its schedule is for all.
    """
    best: Verdict | None = None
    for plan in _starts(judge, step, name, effort):
        verdict = _judged(judge, plan)
        if verdict is not None and verdict.beats(best):
            best = verdict
    return None if best is None else _with_better_settings(judge, step, best)


def _starts(judge: Judge, step: StepSettings, name: str, effort: float) -> Iterator[Plan]:
    """The plans of a strategy by its own options, each under the strategy's name."""
    profile, cluster = judge.profile, judge.cluster
    try:
        if name in ("model", "pipeline"):
            replicas = False if name == "model" else None
            pipelined = name == "pipeline"
            plans = stage_plans(profile, cluster, step, replicas=replicas, pipelined=pipelined, is_near=judge.is_near)
            for plan in plans:
                yield replace(plan, strategy=name)
            return
        if name != "layerwise":
            yield make_plan(name, profile, cluster, step)
            return
        few = cluster.workers <= _FEW_WORKERS
        own = {"objective": "step", "effort": effort} | ({} if few else {"dimensions": "nc"})
        yield make_plan(name, profile, cluster, step, **own)
    except ShardscopeError:
        return


def _with_better_settings(judge: Judge, step: StepSettings, best: Verdict) -> Verdict:
    """The same placements with more or fewer micro-batches and another schedule, as long as that gains.

    Neither is tried where the busiest device alone computes for too long: they change little of that.
    """
    computes = ~best.graph.is_transfer
    busiest_s = np.bincount(best.graph.device[computes], weights=best.graph.seconds[computes]).max(initial=0.0)
    if not judge.is_near(float(busiest_s)):
        return best
    for factor in (2.0, 0.5) if step.microbatches is None else ():
        while (plan := with_microbatches(best.plan, factor)) is not None:
            verdict = _judged(judge, plan)
            if verdict is None or not verdict.beats(best):
                break
            best = verdict
    if step.schedule is None:
        for schedule in SCHEDULES:
            if schedule != best.plan.schedule and (plan_allows(best.plan) or schedule == "dataflow"):
                verdict = _judged(judge, replace(best.plan, schedule=schedule))
                best = verdict if verdict is not None and verdict.beats(best) else best
    return best


def with_microbatches(plan: Plan, factor: float) -> Plan | None:
    """The plan with that many times as many micro-batches, None where the batch or a layer's parts do not allow it."""
    count = round(plan.microbatches * factor)
    parts = max(sharding.degrees[0] for sharding in plan.placements.values())
    if not count or plan.batch_size % count or plan.batch_size // count < parts:
        return None
    if any(sharding.samples for sharding in plan.placements.values()):
        return None
    return replace(plan, microbatches=count)


def _judged(judge: Judge, plan: Plan) -> Verdict | None:
    """The plan simulated, None where it cannot be lowered or the budget is spent (the first plan always counts)."""
    if judge.budget <= 0 and judge.best is not None:
        return None
    try:
        return judge.consider(plan, plan.strategy)
    except ShardscopeError:
        return None
