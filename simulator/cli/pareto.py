"""Show the Pareto front of a sweep in two columns.

A point is on the front when no other point beats it in one column without losing in the other.

    shardscope pareto DIR --x step_s --y peak_memory_bytes --output front.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

from simulator.cli import _printing, _results
from simulator.one_line_parser import option
from simulator.sweep.chart import chart, chart_text

FRONT = "front"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _results.add_arguments(parser)
    option(parser, "--x COLUMN", "default step_s", default="step_s")
    option(parser, "--y COLUMN", "default peak_memory_bytes", default="peak_memory_bytes")


def run(args: argparse.Namespace) -> None:
    from simulator.sweep import queries

    _results.check_outputs(args.output)
    ranked = queries.best(Path(args.folder), args.x, args.where)
    front = queries.pareto(ranked, args.x, args.y)
    groups = {FRONT: front} | {
        name: [row for row in ranked if row["strategy"] == name and row[args.y] is not None]
        for name in sorted({row["strategy"] for row in ranked})
    }
    picture = chart(f"{args.y} against {args.x}", groups, args.x, args.y, joined=FRONT)
    _results.write_outputs(args.output, front, picture)
    if args.json:
        _printing.print_json({"points": front[: args.top]})
        return
    if not front:
        print("no point ran, fits into memory and meets --where")
        return
    _results.print_points(f"{len(front):,} of {len(ranked):,}", front, args.top, (args.x, args.y))
    print(chart_text(picture))
