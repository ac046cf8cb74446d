"""Tables and lines for people, as wide as the terminal is."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from simulator.terminal import say

PLAIN_WIDTH = 120  # columns when the output is no terminal
LEAST_TEXT = 24
"""Columns that a column of words, which may take several lines, has to have."""
GAP = "  "


@dataclass(slots=True, kw_only=True)
class TextColumn:
    """A column of a table."""

    title: str
    """What its head says."""
    to_the_right: bool
    """As numbers are; words are to the left."""
    folds: bool
    """Whether its cells may take several lines."""
    cells: list[str] = field(default_factory=list)
    """One for each row."""
    width: int = 0
    """Columns of the terminal that it takes."""


@dataclass(slots=True, kw_only=True)
class TextTable:
    """Columns of text under their titles, and a rule between them unless it has no header."""

    columns: list[TextColumn]
    header: bool = True

    def add_row(self, *cells: str) -> None:
        """One cell for each column."""
        for column, cell in zip(self.columns, cells, strict=True):
            column.cells.append(cell)

    def measure(self) -> None:
        """Set the width of each column to that of its longest cell."""
        for column in self.columns:
            texts = [column.title, *column.cells] if self.header else column.cells
            column.width = max(map(text_width, texts), default=0)

    def least_width(self) -> int:
        """Columns of the terminal in which no number is cut off, once measured."""
        least = [min(column.width, LEAST_TEXT) if column.folds else column.width for column in self.columns]
        return sum(least) + len(GAP) * (len(least) - 1)

    def lines(self, width: int) -> Iterator[str]:
        """The table, once measured, its words folded so that it takes `width` columns where it can."""
        excess = sum(column.width for column in self.columns) + len(GAP) * (len(self.columns) - 1) - width
        for column in self.columns:
            if column.folds and excess > 0:
                cut = min(excess, max(column.width - LEAST_TEXT, 0))
                column.width, excess = column.width - cut, excess - cut
        if self.header:
            yield GAP.join(_padded(column.title, column) for column in self.columns).rstrip()
            yield "─" * (sum(column.width for column in self.columns) + len(GAP) * (len(self.columns) - 1))
        for row in zip(*(column.cells for column in self.columns), strict=True):
            yield from self._row(row)

    def _row(self, cells: Sequence[str]) -> Iterator[str]:
        parts = [
            textwrap.wrap(cell, column.width) if column.folds and text_width(cell) > column.width else [cell]
            for cell, column in zip(cells, self.columns, strict=True)
        ]
        for number in range(max(map(len, parts))):
            line = [part[number] if number < len(part) else "" for part in parts]
            yield GAP.join(map(_padded, line, self.columns)).rstrip()


def new_table(first: str, *columns: str, last: str | None = None, header: bool = True) -> TextTable:
    """A light table: the first column and `last` to the left, numbers to the right."""
    made = [TextColumn(title=first, to_the_right=False, folds=False)]
    made += [TextColumn(title=title, to_the_right=header, folds=not header) for title in columns]
    if last is not None:
        made.append(TextColumn(title=last, to_the_right=False, folds=True))
    return TextTable(columns=made, header=header)


def print_table(table: TextTable, may_go: Sequence[str] = ()) -> None:
    """Print `table` whole; where the terminal is too narrow, without columns of `may_go`, in this order, and say which.

    No number is ever cut off: what is still too wide runs on in the terminal's next line.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH
    table.measure()
    gone = []
    for title in may_go:
        if table.least_width() <= width:
            break
        kept = [column for column in table.columns if column.title != title]
        gone += [title] if len(kept) < len(table.columns) else []
        table.columns = kept
    print("\n".join(table.lines(width)))
    if gone:
        say(f"left out to fit {width} columns: {', '.join(gone)}; --json has them")


def text_width(text: str) -> int:
    """Columns of a terminal that `text` takes: two for a wide character, none for one that joins another."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def _padded(text: str, column: TextColumn) -> str:
    padding = " " * (column.width - text_width(text))
    return padding + text if column.to_the_right else text + padding
