"""Simulate every combination of strategies, clusters and parameters in a sweep file.

    shardscope sweep SWEEP.yaml --output DIR

Rows are written as points finish: stop it at any time and go on with --resume. Look at the results, also while it
runs, with `shardscope best DIR` and `shardscope pareto DIR`.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from simulator.cli import _printing, _results
from simulator.errors import InputError
from simulator.one_line_parser import count, option
from simulator.terminal import say
from simulator.units import format_duration

if TYPE_CHECKING:
    from simulator.sweep.engines import Engine
    from simulator.sweep.evaluate import SweepContext
    from simulator.sweep.points import Points
    from simulator.sweep.sweeping import Pace


SAMPLE_POINTS, SAMPLE_S, SHOWN = 8, 5.0, 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "sweep SWEEP.yaml", "what to sweep; see docs/sweeps.md")
    option(parser, "--output DIR", "folder of the results (sweep.sqlite)")
    option(parser, "--jobs N", "processes (default: all cores)", count, default=os.cpu_count() or 1)
    option(parser, "--scheduler tcp://...", "run on the workers of this Dask scheduler")
    option(parser, "--dask", "run on --jobs Dask workers started here", choices=["local"])
    option(parser, "--resume", "run only what DIR lacks")
    option(parser, "--dry-run", "say how many points and how long, and run none")
    option(parser, "--json", "print the summary as JSON")


def run(args: argparse.Namespace) -> None:
    import partitioners
    from partitioners._choice_search import plan_by_choice
    from simulator.sweep.points import expand
    from simulator.sweep.specification import read_specification
    from simulator.sweep.sweeping import Progress, run_sweep

    if not args.output and not args.dry_run:
        raise InputError("output is missing: name a folder with --output, or only look with --dry-run")
    options = {name: tuple(partitioners.options(name)) for name in partitioners.strategies()}
    points = expand(read_specification(args.sweep), options)
    if args.dry_run:
        _dry_run(points, args)
        return
    folder, start = Path(args.output), partial(_engine, args=args)
    try:
        with _printing.progress() as show:
            pace = run_sweep(points, plan_by_choice, folder, start, Progress(show), resume=args.resume)
    except KeyboardInterrupt:
        print(f"\nstopped; go on with: shardscope sweep {args.sweep} --output {folder} --resume", file=sys.stderr)
        raise
    _print_summary(folder, len(points.points), pace, args.json)


def _engine(context: SweepContext, args: argparse.Namespace) -> Engine:
    from simulator.sweep.engines import Dask, Processes

    if args.scheduler or args.dask:
        return Dask(context, args.scheduler, args.jobs)
    return Processes(context, args.jobs)


def _dry_run(points: Points, args: argparse.Namespace) -> None:
    """Say how many points there are and, from a few of them spread over the sweep, how long they take."""
    from partitioners._choice_search import plan_by_choice
    from simulator.sweep.evaluate import evaluate
    from simulator.sweep.sweeping import context_of

    context, count = context_of(points, plan_by_choice), len(points.points)
    began, tried = perf_counter(), 0
    for point in points.points[:: -(-count // SAMPLE_POINTS)]:
        evaluate(context, point)
        tried += 1
        if perf_counter() - began > SAMPLE_S:
            break
    estimate_s = (perf_counter() - began) / tried * count / args.jobs
    first = [{"number": point.number, **point.values} for point in points.points[:SHOWN]]
    if args.json:
        _printing.print_json({"points": count, "estimate_s": estimate_s, "first": first})
        return
    say(f"{count:,} points, about {format_duration(estimate_s)} on {args.jobs} processes (from {tried} points)")
    _results.print_rows("first", first, points.names)


def _print_summary(folder: Path, count: int, pace: Pace, as_json: bool) -> None:
    from simulator.sweep.results_table import stage_seconds, status_counts

    counts, seconds = status_counts(folder), stage_seconds(folder)
    if as_json:
        summary: dict[str, Any] = {"points": count, "ran": pace.ran, "wall_s": pace.wall_s, **counts}
        _printing.print_json(summary | {"points_per_s": pace.points_per_s, "stage_wall_s": seconds})
        return
    counts_words = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    say(f"{count:,} points: {counts_words}")
    if pace.ran:
        total = sum(seconds.values()) or 1.0
        shares = ", ".join(f"{stage} {part / total:.0%}" for stage, part in seconds.items())
        run_words = f"{pace.ran:,} run in {format_duration(pace.wall_s)}, {pace.points_per_s:.1f} points/s"
        say(f"{run_words}; time in {shares}")
    print(f"results: {folder}; shardscope best {folder}")
