"""Rank the points of a sweep, or show which strategy is best across a parameter.

    shardscope best DIR --objective step --where "devices = 16"
    shardscope best DIR --across inter_bandwidth_bytes_per_s --by strategy --output plot.html

Points that do not fit into memory are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli import _printing, _results, _tables
from simulator.errors import InputError
from simulator.one_line_parser import option
from simulator.sweep.chart import chart, chart_text, column_title, value_text

if TYPE_CHECKING:
    from simulator.sweep.queries import Lead

RANK = "rank"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _results.add_arguments(parser)
    option(parser, "--objective NAME", "step (default), throughput, cost, memory, or any column", default="step")
    option(parser, "--across COLUMN", "show the best at each value of this parameter")
    option(parser, "--by COLUMN", "with a line each (default: strategy)", default="strategy")


def run(args: argparse.Namespace) -> None:
    from simulator.sweep import queries

    _results.check_outputs(args.output)
    objective = queries.OBJECTIVES.get(args.objective, args.objective)
    rows = queries.best(Path(args.folder), objective, args.where)
    unpriced = args.objective == "cost" and not any(row[objective] for row in rows)
    if unpriced and queries.best(Path(args.folder), "step_s", args.where):  # points there are, whatever they cost
        raise InputError("objective is cost, but no cluster of this sweep has prices; add dollars_per_hour to one")
    ranked = [{**row, RANK: number} for number, row in enumerate(rows, start=1)]
    parameter = args.across or RANK
    groups = queries.across(ranked, parameter, args.by)
    leads = queries.leads(groups, parameter, objective) if args.across else []
    picture = chart(f"{objective}, best by {args.by}", groups, parameter, objective)
    _results.write_outputs(args.output, rows, picture)
    if args.json:
        _printing.print_json(_plain(rows[: args.top], groups, leads, bool(args.across)))
        return
    if not rows:
        print("no point ran, fits into memory and meets --where")
        return
    _print(args, ranked, groups, leads, objective)
    print(chart_text(picture))


def _plain(rows: Sequence[Any], groups: Mapping[str, Sequence[Any]], leads: Sequence[Lead], across: bool) -> Any:
    if not across:
        return {"points": rows}
    ranges = [{"name": lead.name, "first": lead.first, "last": lead.last} for lead in leads]
    return {"groups": groups, "leads": ranges}


def _print(
    args: argparse.Namespace,
    rows: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[Mapping[str, Any]]],
    leads: Sequence[Lead],
    objective: str,
) -> None:
    """The ranking or, across a parameter, the groups' best at each of its values and who leads where."""
    if not args.across:
        _results.print_points(f"of {len(rows):,}", rows, args.top, (objective,))
        return
    table = _tables.new_table(column_title(args.across), *groups)
    scores = {name: {row[args.across]: row[objective] for row in of} for name, of in groups.items()}
    for value in sorted({value for of in scores.values() for value in of}):
        table.add_row(value_text(args.across, value), *(value_text(objective, of.get(value)) for of in scores.values()))
    _tables.print_table(table)
    for lead in leads:
        ends = dict.fromkeys(value_text(args.across, end) for end in (lead.first, lead.last))
        print(f"{lead.name} leads at {' to '.join(ends)}")
