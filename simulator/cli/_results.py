"""What `best`, `pareto` and `search` share: tables of rows, and files whose suffix says what they hold."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.cli import _tables
from simulator.errors import InputError
from simulator.files import write_text_atomic
from simulator.one_line_parser import count, option
from simulator.sweep.chart import Chart, column_title, value_text

Row = Mapping[str, Any]
SUFFIXES = (".csv", ".parquet", ".html", ".png")
ALWAYS = ("strategy", "step_s", "samples_per_s", "dollars_per_sample", "peak_memory_bytes", "bottleneck")
MAY_GO = ("schedule", "samples_per_s", "dollars_per_sample", "bottleneck", "peak_memory_bytes")
"""Columns that a narrow terminal does not get."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "folder DIR", "folder that `shardscope sweep --output` wrote")
    text = "only points for which this holds, e.g. \"devices <= 8 and strategy = 'data'\""
    option(parser, "--where SQL", text, repeatable=True)
    option(parser, "--top N", "rows to print (default 10; as JSON all)", count)
    add_output(parser)
    option(parser, "--json", "print the rows as JSON instead")


def add_output(
    parser: argparse.ArgumentParser, what: str = "write all rows (.csv, .parquet) or the plot (.html, .png)"
) -> None:
    """The option whose paths `check_outputs` and `write_outputs` take."""
    option(parser, "--output FILE", what, Path, repeatable=True)


def check_outputs(paths: Sequence[Path]) -> None:
    """Raise InputError on a suffix that is not known, before any work."""
    for path in paths:
        if path.suffix not in SUFFIXES:
            raise InputError(f"output {path}: its suffix says what to write, one of {', '.join(SUFFIXES)}")


def write_outputs(paths: Sequence[Path], rows: Sequence[Row], chart: Chart) -> None:
    """Write rows or chart to each path."""
    from simulator.sweep import export

    for path in paths:
        if path.suffix == ".csv":
            write_text_atomic(path, export.csv_text(rows))
        elif path.suffix == ".parquet":
            export.write_parquet(rows, path)
        elif path.suffix == ".html":
            export.write_html([export.figure(chart)], path)
        else:
            export.write_png(chart, path)


def print_points(title: str, rows: Sequence[Row], top: int | None, sought: Sequence[str]) -> None:
    """The first `top` or 10 points of a sweep: inputs that differ, `sought`, which never go, and the usual figures."""
    inputs = list(rows[0])[1 : list(rows[0]).index("profile_hash")]
    differing = [name for name in inputs if len({row[name] for row in rows}) > 1]
    usual = [name for name in ALWAYS if name != "dollars_per_sample" or any(row.get(name) for row in rows)]
    print_rows(title, rows[: top or 10], list(dict.fromkeys([*differing, *sought, *usual])), sought)


def print_rows(title: str, rows: Sequence[Row], columns: Sequence[str], sought: Sequence[str] = ()) -> None:
    """A table of some columns of rows, values in the unit that a person expects; `sought` are those that never go."""
    table = _tables.new_table(title, *map(column_title, columns))
    for number, row in enumerate(rows, start=1):
        table.add_row(str(number), *(value_text(name, row[name]) for name in columns))
    _tables.print_table(table, [column_title(name) for name in MAY_GO if name not in sought])
