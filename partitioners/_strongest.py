"""The strongest plans of every strategy: what a search starts from, and what its answer is compared with.

Of what a strategy says there is to try the best is taken, then with other micro-batches and schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

import partitioners
from partitioners import StrategyChoice, choices
from partitioners._choice_search import MOST_SIMULATED, ChoiceSearch, Simulated, roughly
from partitioners._judge.judge import Judge, Verdict
from partitioners._search.annealing import may_have_stages, with_microbatches
from simulator.cluster import Cluster
from simulator.errors import InputError, ShardscopeError
from simulator.plan import Plan, StepSettings

STRATEGIES = ("data", "owt", "layerwise", "pipeline", "model", "fsdp", "megatron")
"""Those ahead whose plans are often near the best, so that the others need not all be simulated."""
SCHEDULES = ("1f1b", "gpipe", "dataflow")
"""Those that plans of stages are tried with."""


def simulated(judge: Judge, step: StepSettings, name: str, *, effort: float = 1.0) -> list[Verdict]:
    """All that is simulated to find the strongest plan of strategy `name`, in that order; none without a budget.

    effort: of the simulations of a strategy that searches by itself. What the step says holds; its schedule is for all.
    """
    verdicts: list[Verdict] = []

    def simulate(choice: StrategyChoice, cluster: Cluster, plan: Plan) -> Simulated:
        verdict = _judged(judge, plan)
        if verdict is None:
            raise InputError("budget is spent: no further plan is simulated")
        verdicts.append(verdict)
        return Simulated(verdict.cost, not verdict.excess_bytes)

    search = ChoiceSearch(profile=judge.profile, runtime=judge.runtime, simulate=simulate, score=roughly)
    for choice in choices(name, judge.profile, judge.cluster, step):
        own = {**partitioners.applicable(name, effort=effort), **choice.own}
        search.add(replace(choice, own=own), judge.cluster)
    search.run(1, lambda: len(verdicts) < MOST_SIMULATED and judge.budget > 0 and judge.is_near(search.least))
    best = best_of(verdicts)
    return verdicts if best is None else [*verdicts, *_with_other_settings(judge, step, best)]


def best_of(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The best of them, of equal ones the first; None of none."""
    best: Verdict | None = None
    for verdict in verdicts:
        best = verdict if verdict.beats(best) else best
    return best


def _with_other_settings(judge: Judge, step: StepSettings, best: Verdict) -> Iterator[Verdict]:
    """The same placements with more or fewer micro-batches and another schedule, as long as that gains.

    Neither is tried where the busiest device alone computes for too long: they change little of that.
    """
    computes = ~best.graph.is_transfer
    busiest_s = np.bincount(best.graph.device[computes], weights=best.graph.seconds[computes]).max(initial=0.0)
    if not judge.is_near(float(busiest_s)):
        return
    for factor in (2.0, 0.5) if step.microbatches is None else ():
        while (plan := with_microbatches(best.plan, factor)) is not None:
            verdict = _judged(judge, plan)
            if verdict is not None:
                yield verdict
            if verdict is None or not verdict.beats(best):
                break
            best = verdict
    for schedule in SCHEDULES if step.schedule is None else ():
        if schedule != best.plan.schedule and (may_have_stages(best.plan) or schedule == "dataflow"):
            verdict = _judged(judge, replace(best.plan, schedule=schedule))
            if verdict is not None:
                yield verdict
                best = verdict if verdict.beats(best) else best


def _judged(judge: Judge, plan: Plan) -> Verdict | None:
    """The plan simulated, None where it cannot be lowered or the budget is spent (the first plan always counts)."""
    if judge.budget <= 0 and judge.best is not None:
        return None
    try:
        return judge.consider(plan, plan.strategy)
    except ShardscopeError:
        return None
