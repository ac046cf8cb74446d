"""Hypergraph-partitioned model parallelism: KaHyPar cuts and the plans of other strategies, refined by simulation.

The cut minimises communication at balanced compute, but a balanced cut can still run slowly when its shards wait for
each other. So plans are judged by the simulated step. Those of the other strategies near the best, which the same
notation holds, are changed while that gains, then annealed; with what is left of the budget several cuts (grids,
imbalances, seeds) are simulated, and border shards of the best migrate while that gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import Literal

from partitioners import make_plan, options
from partitioners._hypergraphs.hypergraph import Grid, Hypergraph, build, exact_grid, grid_of
from partitioners._hypergraphs.kahypar import Run, cut, kahypar
from partitioners._hypergraphs.mtkahypar import mtkahypar
from partitioners._judge.judge import Judge, Progress, Verdict
from partitioners._search.migrate import Cut, migrate
from partitioners._search.refinement import refine
from partitioners._strongest import STRATEGIES, simulated
from simulator.cluster import Cluster
from simulator.errors import InputError, ShardscopeError, require
from simulator.ordered_sum import ordered_sum
from simulator.plan import Partition, Plan, StepSettings
from simulator.plan_rules import require_effort
from simulator.units import format_bytes
from simulator.workload import Profile

_CUT_TASKS = 1_000_000
"""Tasks of cuts that may be simulated at effort 1, where no plans of other strategies are to be improved."""
_TASKS = 16_000_000
"""As long as simulating so many tasks the local search may take at effort 1, most of it for plans not simulated."""
_LEFT_TASKS = 20_000
"""Of those that the refinement leaves, the most that go to cuts: they seldom beat what it finds."""
_TASKS_PER_VERTEX = 10
"""A cut takes about as long as simulating this many tasks for each of its vertices."""
_PATIENCE = 12
_ROUNDS = 2


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    grid: tuple[int, int] | None = None,
    imbalance: float | None = None,
    objective: Literal["step", "volume"] = "step",
    effort: float = 1.0,
    others: bool = True,
    partitioner: Literal["kahypar", "mtkahypar"] = "kahypar",
    seed: int = 0,
    progress: Progress | None = None,
) -> Partition:
    """What the best plan found has; its `strategy` names the one that it came from, if not a cut.

    grid: (sample, channel) slots of every layer, by default several are tried. imbalance: how much more than its
    share of compute a device may get; by default several between 3 % and 30 % when the step is the objective,
    3 % when the volume is, where only plans that keep to it count. effort: multiplies how many tasks are
    simulated. others: also consider the plans of other strategies. partitioner: "mtkahypar" knows which workers are
    near each other, and needs the extra of that name. A device's share follows its speed.
    Raises InputError when the grid is too coarse, no cut keeps to a given imbalance, or nothing fits in memory.
    """
    require_effort(effort)
    require(objective in ("step", "volume"), "objective", repr(objective), "it is 'step' or 'volume'")
    require(partitioner in ("kahypar", "mtkahypar"), "partitioner", repr(partitioner), "'kahypar' or 'mtkahypar'")
    if grid is not None:
        rule = "it is a pair of at least 1 (sample slots, channel slots), e.g. 8x8"
        require(isinstance(grid, tuple) and len(grid) == 2 and min(grid) >= 1, "grid", grid, rule)
    judge = Judge(
        profile=profile,
        cluster=cluster,
        runtime=step.runtime,
        objective=objective,
        progress=progress,
    )
    bound = imbalance if objective == "step" else (0.03 if imbalance is None else imbalance)
    searched = replace(step, schedule=None)  # plans are compared under the strategies' own schedules
    free = others and bound is None
    starts = list(_starts(judge, searched, effort)) if free else []
    # whatever the strongest plans took: the answer is never worse than they are
    judge.grant((_TASKS if free else _CUT_TASKS) * effort)
    if free:
        refine(judge, starts, effort, microbatches=step.microbatches is None, seed=seed)
        judge.grant(min(judge.budget, _LEFT_TASKS * effort))
    elif others:
        _consider_others(judge, searched, bound)
    engine = partial(mtkahypar, cluster) if partitioner == "mtkahypar" else kahypar
    spent = free and judge.budget <= 0
    best_cut = None if spent else _consider_cuts(judge, searched, grid, bound, seed, engine, only_near=free)
    if best_cut is not None and bound is None and (not free or judge.is_near(best_cut.verdict.cost)):
        migrate(judge, best_cut, patience=round(_PATIENCE * effort))
    return _answer(judge)


def _starts(judge: Judge, step: StepSettings, effort: float) -> Iterator[Verdict]:
    """What is simulated to find the strongest plans of the other strategies and near the best of them so far."""
    for name in STRATEGIES:
        yield from (each for each in simulated(judge, step, name, effort=effort) if judge.is_near(each.cost))


def _promises_more(judge: Judge, best_cut: Verdict, trial: int, shapes: int) -> bool:
    """Whether cuts are worth going on with after so many of them, `shapes` to a round."""
    if trial == 1 and not judge.is_near(best_cut.cost):
        return False
    return trial % shapes != 0 or (best_cut is judge.best and trial < _ROUNDS * shapes)


def shares(cluster: Cluster) -> list[float]:
    """Each worker's share of the compute, shape (workers,): its speed over the sum of speeds."""
    speeds = cluster.speeds[: cluster.workers]
    return [speed / ordered_sum(speeds) for speed in speeds]


def _consider_others(judge: Judge, step: StepSettings, bound: float | None) -> None:
    """Simulate the plans of the other strategies that can be made (and are balanced, where a bound is given)."""
    several = step.microbatches is not None and step.microbatches > 1
    freely = step if several else replace(step, microbatches=None)
    for name in STRATEGIES:
        if several and "microbatches" not in options(name):
            continue
        unjudged = {"judged": False} if "judged" in options(name) else {}  # the judge here does it
        try:
            other = make_plan(name, judge.profile, judge.cluster, freely, **unjudged)
        except ShardscopeError:
            continue
        if bound is None or plan_imbalance(judge.profile, judge.cluster, other) <= bound + 1e-6:
            judge.consider(other, name)


def plan_imbalance(profile: Profile, cluster: Cluster, plan: Plan) -> float:
    """Largest of (a worker's compute / its share) - 1 of any plan."""
    weights = build(profile, exact_grid(plan, profile))
    parts = [device for layer in profile.layers for device in plan.placements[layer.name].devices]
    return weights.imbalance(parts, shares(cluster))


def _consider_cuts(
    judge: Judge,
    step: StepSettings,
    grid: tuple[int, int] | None,
    bound: float | None,
    seed: int,
    engine: Run,
    *,
    only_near: bool,
) -> Cut | None:
    """Simulate cuts, coarse variety first, until most of the budget is spent. Returns the best of them.

    only_near: the fewest shards first; stop when the first cut is not near the judge's best, or a round of all grids
    has not beaten it.
    """
    reserve, share = judge.budget * 0.3, shares(judge.cluster)
    microbatches = step.microbatches or 1
    grids: dict[tuple[int, int], tuple[Grid, Hypergraph]] = {}
    best: Cut | None = None
    nearest = inf
    rounds = list(_variety(judge.cluster.workers, step.microbatch_size, grid, bound, fewest_first=only_near))
    shapes = len({shape for shape, _, _ in rounds})
    for trial, (shape, allowed, number) in enumerate(rounds):
        if judge.budget < reserve and best is not None:
            break
        if only_near and best is not None and not _promises_more(judge, best.verdict, trial, shapes):
            break
        if shape not in grids:
            made = grid_of(judge.profile, *shape, batch_size=step.batch_size, microbatches=microbatches)
            grids[shape] = made, build(judge.profile, made)
        made, hypergraph = grids[shape]
        if grid is None and made.vertices < len(share):
            continue
        parts = cut(hypergraph, share, imbalance=allowed, seed=seed + number, run=engine)
        judge.budget -= _TASKS_PER_VERTEX * made.vertices
        cut_imbalance = hypergraph.imbalance(parts, share)
        nearest = min(nearest, cut_imbalance)
        if bound is None or cut_imbalance <= bound + 1e-6:
            plan = step.plan(judge.profile, Partition(placements=made.placements(judge.profile, parts)))
            verdict = judge.consider(plan, f"a cut of {shape[0]}x{shape[1]} shards")
            if best is None or verdict.beats(best.verdict):
                best = Cut(grid=made, hypergraph=hypergraph, parts=parts, verdict=verdict)
    if judge.best is None:
        raise InputError(
            f"imbalance is {bound}: no cut keeps to it; the smallest found is {nearest:.3f}, "
            "so allow that much or take a finer grid"
        )
    return best


def _variety(
    workers: int, samples: int, grid: tuple[int, int] | None, bound: float | None, *, fewest_first: bool
) -> Iterator[tuple[tuple[int, int], float, int]]:
    """(grid, imbalance, seed offset) in the order of trial."""
    shapes = [grid] if grid is not None else _shapes(workers, samples)
    shapes = sorted(shapes, key=prod) if fewest_first else shapes
    for number in range(4):
        for allowed in [0.03, 0.1, 0.3] if bound is None else [bound]:
            for shape in shapes:
                yield shape, allowed, number


def _shapes(workers: int, samples: int) -> list[tuple[int, int]]:
    """Grids fine enough to balance, none with more sample slots than samples."""
    wanted = [(8, 8), (8, 1), (4, 4)] if workers <= 8 else []
    wanted += [(workers, 4), (workers, 1), (2 * workers, 2), (1, 2 * workers)]
    return list(dict.fromkeys((min(n, samples), c) for n, c in wanted))


def _answer(judge: Judge) -> Partition:
    best = judge.best
    assert best is not None
    if best.excess_bytes > 0:
        limit = min(device.memory_bytes for device in judge.cluster.devices if device.memory_bytes)
        raise InputError(
            f"memory_bytes is {format_bytes(limit)}: no plan found fits; "
            f"the best needs {format_bytes(limit + best.excess_bytes)} on one device"
        )
    plan = best.plan
    return Partition(
        placements=plan.placements,
        microbatches=plan.microbatches,
        schedule=plan.schedule,
        recomputed=plan.recomputed,
        exchange=plan.exchange,
        received_again=plan.received_again,
        states=plan.states,
        strategy=plan.strategy,
    )
