"""Tables and lines for people, as wide as the terminal is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.terminal import folded

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 120  # columns when the output is no terminal
WIDEST = 2000
"""Columns in which any table fits."""
LEAST_TEXT = 24
"""Columns that a column of words, which may take several lines, has to have."""


def new_table(first: str, *columns: str, last: str | None = None, header: bool = True) -> Table:
    """A light table: the first column and `last` to the left, numbers to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=header, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right" if header else "left", no_wrap=header)
    if last is not None:
        table.add_column(last)
    return table


def say(console: Console, text: str) -> None:
    """A line for people to read, see `folded`; one to copy, such as a command, is printed as it is."""
    console.print(folded(text), soft_wrap=True)


def new_console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False, markup=False)


def print_table(console: Console, table: Table, may_go: Sequence[str] = ()) -> None:
    """Print `table` whole; where the terminal is too narrow, without columns of `may_go`, in this order, and say which.

    No number is ever cut off: what is still too wide runs on in the terminal's next line.
    """
    gone = []
    for title in may_go:
        if _least_width(console, table) <= console.width:
            break
        kept = [column for column in table.columns if column.header != title]
        gone += [title] if len(kept) < len(table.columns) else []
        table.columns = [replace(column, _index=number) for number, column in enumerate(kept)]
    width = console.width
    console.width = max(width, _least_width(console, table))
    console.print(table)
    console.width = width
    if gone:
        say(console, f"too narrow for {', '.join(gone)}; --json has them")


def _least_width(console: Console, table: Table) -> int:
    """Columns of the terminal in which no number is cut off."""
    from rich.cells import cell_len

    whole = console.measure(table, options=console.options.update(max_width=WIDEST)).maximum
    words = [column for column in table.columns if not column.no_wrap]
    longest = [max(cell_len(str(cell)) for cell in (column.header, *column.cells)) for column in words]
    return whole - sum(max(0, length - LEAST_TEXT) for length in longest)
