"""The strongest plans of every strategy: what a search starts from, and what its answer is compared with.

Every strategy may choose micro-batches, and a schedule or none; `layerwise` may look for the step instead of its sum,
stages may be fewer than devices and may have replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from partitioners import StrategyChoice, choices
from partitioners._grid_choices import recomputing_more
from partitioners._judge.judge import Judge, Verdict
from partitioners._search.annealing import with_microbatches
from partitioners._search.best_first import BestFirst
from partitioners._stages.stage_cuts import SCHEDULES, plan_allows, stage_plans
from simulator.errors import ShardscopeError
from simulator.lowering.sharded_model import ShardedModel
from simulator.parameter_states import REPLICATED
from simulator.plan import Plan, StepSettings
from simulator.sweep.bounds import plan_bound

STRATEGIES = ("data", "owt", "layerwise", "pipeline", "model", "fsdp", "megatron")
"""Those ahead whose plans are often near the best, so that the others need not all be simulated."""
_FEW_WORKERS = 8
"""Up to here a search gives layer-wise parallelism all four dimensions; beyond, their tables take seconds."""
_SIMULATED = 12
"""Choices of a strategy that are simulated at most, those of the least bounds."""


def strongest(judge: Judge, step: StepSettings, name: str, *, effort: float = 1.0) -> Verdict | None:
    """The best of the plans of strategy `name` that the judge has budget for, None where it has none.

    effort: of the simulations for layer-wise parallelism. What the step says holds; its schedule is for all.
    """
    if name in ("model", "pipeline"):
        best = _best(judge, _stages(judge, step, name))
    elif name == "layerwise":
        few = judge.cluster.workers <= _FEW_WORKERS
        own = {"objective": "step", "effort": effort} | ({} if few else {"dimensions": "nc"})
        best = _best(judge, _made(judge, StrategyChoice(strategy=name, step=step, own=own)))
    else:
        best = _best_choice(judge, step, name)
    return None if best is None else _with_better_settings(judge, step, best)


def _best(judge: Judge, plans: Iterator[Plan]) -> Verdict | None:
    best: Verdict | None = None
    for plan in plans:
        verdict = _judged(judge, plan)
        if verdict is not None and verdict.beats(best):
            best = verdict
    return best


def _best_choice(judge: Judge, step: StepSettings, name: str) -> Verdict | None:
    """Of what there is to try of a strategy, by lower bounds; with more recomputation where it does not fit."""
    verdicts: list[Verdict] = []
    queue = BestFirst[tuple[StrategyChoice, Plan]](group=lambda each: None)

    def add(choice: StrategyChoice | None) -> None:
        for plan in _made(judge, choice):
            bound = plan_bound(ShardedModel(judge.profile, plan), judge.cluster, judge.runtime)
            if judge.is_near(bound.step_s):
                assert choice is not None
                queue.add(bound.step_s, (choice, plan))

    def judged(each: tuple[StrategyChoice, Plan]) -> float | None:
        verdict = _judged(judge, each[1])
        if verdict is None or (verdict.excess_bytes and verdicts):
            return None
        if verdict.excess_bytes:
            add(recomputing_more(each[0], judge.profile))
        verdicts.append(verdict)
        return None if verdict.excess_bytes else verdict.cost

    for choice in choices(name, judge.profile, judge.cluster, step):
        add(replace(choice, step=replace(choice.step, synchronisation=step.synchronisation)))
    queue.run(judged, 1, lambda: len(verdicts) < _SIMULATED)
    best: Verdict | None = None
    for verdict in verdicts:
        best = verdict if verdict.beats(best) else best
    return best


def _made(judge: Judge, choice: StrategyChoice | None) -> Iterator[Plan]:
    """The plan of a choice, where there is one."""
    with suppress(ShardscopeError):
        if choice is not None:
            yield choice.plan(judge.profile, judge.cluster)


def _stages(judge: Judge, step: StepSettings, name: str) -> Iterator[Plan]:
    replicas, pipelined = False if name == "model" else None, name == "pipeline"
    with suppress(ShardscopeError):
        for plan in stage_plans(
            judge.profile, judge.cluster, step, replicas=replicas, pipelined=pipelined, is_near=judge.is_near
        ):
            yield replace(plan, strategy=name)


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


def is_plain(plan: Plan) -> bool:
    """Whether placements, micro-batches and a schedule are all there is to a plan, as where layers move one by one."""
    return plan.states == REPLICATED and not plan.recomputed and plan.exchange == "messages"


def _judged(judge: Judge, plan: Plan) -> Verdict | None:
    """The plan simulated, None where it cannot be lowered or the budget is spent (the first plan always counts)."""
    if judge.budget <= 0 and judge.best is not None:
        return None
    try:
        return judge.consider(plan, plan.strategy)
    except ShardscopeError:
        return None
