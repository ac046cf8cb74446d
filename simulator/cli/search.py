"""Search all strategies for the best plan and bound how far it is from the optimum.

After a first look by strategies that search themselves, what every strategy says there is to try is simulated in the
order of lower bounds, which rule out the rest; then the best plans are changed until the budget is spent. Prints the
best plan so far, also after Ctrl-C. A row has the best simulated plan of its strategy; better ones that could not beat
the first row are left out: `compare` ranks strategies.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from simulator.cli import _effects, _options, _plan_files, _printing, _results
from simulator.errors import InputError, require
from simulator.one_line_parser import option, time
from simulator.sweep.chart import column_title, value_text
from simulator.terminal import say
from simulator.units import counted, format_time

if TYPE_CHECKING:
    from partitioners import StrategyChoice
    from partitioners._choice_search import ChoiceBound
    from partitioners._plan_search import PlanSearch, Tally
    from simulator.cluster import Cluster
    from simulator.sweep.bounds import Bound
    from simulator.workload import Profile

LEFT_OUT = frozenset({"shuffle"})
"""Strategies that are there to be beaten."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser)
    text = "what to minimise; cost may leave devices unused (default step)"
    option(parser, "--objective", text, choices=["step", "throughput", "cost", "memory"], default="step")
    option(parser, "--budget TIME", "time to search (default 60s)", time, default="60s")
    option(parser, "--plan-out FILE", "write the plan (JSON)")
    option(parser, "--json", "print plan figures, bound and tally as JSON instead")


def run(args: argparse.Namespace) -> None:
    with _printing.progress() as progress:
        searching = searched(args, args.budget, progress)
    if args.plan_out and searching.best:
        _plan_files.write_plan(searching.best.plan, args.plan_out, args)
    if args.json:
        _print_json(searching)
    else:
        _print(searching, args.plan_out)


def searched(
    args: argparse.Namespace,
    budget_s: float,
    progress: Callable[[str], None] | None,
    cluster: Cluster | None = None,
) -> PlanSearch:
    """The search asked for, after so long or an interrupt; cluster: another than --cluster says. Raises InputError
    where nothing was found."""
    ends_s = perf_counter() + budget_s
    searching = plan_search(args, lambda: ends_s - perf_counter(), progress, cluster)
    with suppress(KeyboardInterrupt):
        searching.run()
    if searching.best is None:
        tally = searching.tally
        raise InputError(
            f"no plan found: {tally.too_large} do not fit into memory, {tally.infeasible} cannot be built; "
            "take more devices, a smaller batch or a longer --budget"
        )
    return searching


def plan_search(
    args: argparse.Namespace,
    time_left_s: Callable[[], float],
    progress: Callable[[str], None] | None = None,
    cluster: Cluster | None = None,
) -> PlanSearch:
    """The search asked for, not begun; cluster: as for `searched`. Raises InputError."""
    import partitioners
    from partitioners._plan_search import OBJECTIVES, PlanSearch
    from simulator.language_models.training_stack import stack_of

    profile = _options.read_profile(args)
    cluster = cluster or _options.read_cluster(args, args.sync)
    if args.objective == "cost" and not any(device.dollars_per_hour for device in cluster.devices):
        raise InputError(f"objective is cost, but cluster {cluster.name!r} has no prices; add dollars_per_hour to it")
    _effects.check_step(args)
    require(not args.schedule, "schedule", repr(args.schedule), "a search chooses schedules itself; leave it out")
    return PlanSearch(
        profile=profile,
        cluster=cluster,
        objective=OBJECTIVES[args.objective],
        step=_options.step_settings(profile, cluster, args)[0],
        names=[name for name in partitioners.strategies() if name not in LEFT_OUT],
        time_left_s=time_left_s,
        bounds=_bounds(args, profile) if stack_of(profile) else (),
        wanted=lambda choice: args.zero is None or choice.step.states.stage == args.zero,
        seed=args.seed,
        watch=partial(_watch, progress) if progress else lambda tally: None,
    )


def _bounds(args: argparse.Namespace, profile: Profile) -> Sequence[ChoiceBound]:
    """Bounds of a card's grids, with what they share worked out once for each cluster."""
    from partitioners._grids.grid_bounds import GridBounds
    from simulator.language_models.training_stack import stack_for, stack_of

    known: dict[int, GridBounds] = {}  # by workers

    def bound(choice: StrategyChoice, cluster: Cluster, simulated: bool) -> Bound:
        assert choice.grid is not None
        if cluster.workers not in known:
            stack = replace(stack_for(cluster, stack_of(profile)), runtime=_options.read_runtime(args, profile))
            known[cluster.workers] = GridBounds(profile, cluster, stack)
        return known[cluster.workers].bound(choice.grid, simulated=simulated)

    return partial(bound, simulated=False), partial(bound, simulated=True)


def _watch(progress: Callable[[str], None], tally: Tally) -> None:
    best = min(tally.best.values(), key=lambda scored: scored.score)
    progress(f"{_plans(tally)} simulated, best step {format_time(best.report.step_s)} ({best.plan.strategy})")


def _plans(tally: Tally) -> str:
    return counted(tally.simulated, "plan")


def _gap(score: float, bound: float) -> float | None:
    """How much larger the score is than the bound, as a ratio to the bound; sums differ in their last digits."""
    return max(score / bound - 1, 0.0) if bound > 0 else None


def _rows(searching: PlanSearch) -> list[dict[str, Any]]:
    column = searching.objective.column
    return [
        {
            "strategy": name + (" (refined)" if scored.refined else ""),
            "devices": scored.cluster.workers,
            "microbatches": scored.plan.microbatches,
            "schedule": scored.plan.schedule,
            column: scored.score,
            "step_s": scored.report.step_s,
            "peak_memory_bytes": scored.report.peak_memory_bytes,
            "bottleneck": scored.report.bottleneck.resource,
        }
        for name, scored in sorted(searching.tally.best.items(), key=lambda item: item[1].score)
    ]


def _print(searching: PlanSearch, plan_out: str | None) -> None:
    rows, tally, column = _rows(searching), searching.tally, searching.objective.column
    _results.print_rows("best simulated", rows, list(rows[0]), (column,))
    counts = f"{_plans(tally)} simulated, {tally.too_large} do not fit into memory, {tally.infeasible} cannot be built"
    if tally.bounded:
        least = value_text(column, tally.least)
        counts += f"; {tally.bounded} choices were not simulated: some may beat their row, none has less than {least}"
    say(counts if tally.complete else f"{counts}; the budget is spent before all were tried")
    score, bound = rows[0][column], searching.bound
    gap = _gap(score, bound)
    gap_words = (
        "" if gap is None else f"; layers cut in any way take {value_text(column, bound)} at least: gap {gap:.1%}"
    )
    say(f"best {column_title(column)} {value_text(column, score)}{gap_words}")
    if plan_out:
        print(f"plan: {plan_out}")


def _print_json(searching: PlanSearch) -> None:
    rows, tally = _rows(searching), searching.tally
    score, bound = rows[0][searching.objective.column], searching.bound
    _printing.print_json(
        {
            "objective": searching.objective.column,
            "score": score,
            "bound": bound,
            "gap_ratio": _gap(score, bound),
            **{name: getattr(tally, name) for name in ("complete", "simulated", "bounded", "too_large", "infeasible")},
            "bounded_least": tally.least,
            "strategies": rows,
        }
    )
