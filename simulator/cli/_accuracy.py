"""What `compare --to-accuracy` adds: when each strategy reaches the accuracy, and what that costs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from simulator.cli import _tables
from simulator.errors import InputError
from simulator.one_line_parser import option, positive
from simulator.terminal import say
from simulator.units import format_time

if TYPE_CHECKING:
    from simulator.convergence.curves import Curves, Interval
    from simulator.convergence.time_to_accuracy import CostToAccuracy
    from simulator.workload import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    accuracy = parser.add_argument_group("time to accuracy")
    option(accuracy, "--to-accuracy X", "rank by the time to this accuracy, e.g. 0.97", positive)
    option(accuracy, "--curves FILE", "measured by `shardscope converge` (default: those stored for the network)")


def read(args: argparse.Namespace, profile: Profile) -> Curves | None:
    """The curves to judge by, None where no accuracy was asked for. Raises as the reading does."""
    from simulator.convergence.curve_files import read_curves
    from simulator.convergence.curves import Regime
    from simulator.convergence.time_to_accuracy import check_curves

    if args.to_accuracy is None:
        if args.curves:
            raise InputError("curves are given, but no accuracy to reach: add --to-accuracy, e.g. 0.97")
        return None
    curves = read_curves(args.curves or profile.model)
    check_curves(curves, profile)
    curves.samples_to(args.to_accuracy, Regime(batch_size=args.batch_size or profile.batch_size))
    return curves


def print_reached(curves: Curves, reached: Mapping[str, CostToAccuracy]) -> None:
    """One row per strategy, in the order given."""
    rows = list(reached.values())
    if not rows:
        return
    costs = any(row.dollars for row in rows), any(row.joules for row in rows)
    columns = ("batch", "stale", "samples", "updates", "time", "of the trials")
    table = _tables.new_table(
        f"to {rows[0].target:g}", *columns, *(("cost",) if costs[0] else ()), *(("energy",) if costs[1] else ())
    )
    for name, row in reached.items():
        table.add_row(name, *_cells(row, costs))
    print()
    _tables.print_table(table, ("updates", "stale"))
    for source in dict.fromkeys(row.samples.source for row in rows):
        say(f"samples: {source}, {rows[0].samples.trials} trials of {curves.model} on {curves.dataset}")


def _cells(row: CostToAccuracy, costs: Sequence[bool]) -> list[str]:
    batch, samples = row.regime.batch_size, row.samples.interval
    cells = [
        str(batch),
        str(row.regime.staleness or "-"),
        _count(samples.median),
        _count(samples.median / batch),
        _time(row.seconds.median),
        f"{_time(row.seconds.low)} to {_time(row.seconds.high)}",
    ]
    if costs[0]:
        cells.append(_amount(row.dollars, 1.0, "$"))
    if costs[1]:
        cells.append(_amount(row.joules, 1 / 3.6e6, "", " kWh"))
    return cells


def _count(value: float) -> str:
    return "-" if value == inf else f"{value:,.0f}"


def _time(seconds: float) -> str:
    return "never" if seconds == inf else format_time(seconds)


def _amount(value: Interval | None, factor: float, before: str, after: str = "") -> str:
    return "-" if value is None or value.median == inf else f"{before}{value.median * factor:,.4g}{after}"
