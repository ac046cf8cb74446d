"""Charts as data: series of points, titles and scales of the axes; and a chart as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log10
from typing import Any

from simulator.sweep.axes import BANDWIDTH
from simulator.units import format_bandwidth, format_bytes, format_time

MARKS = "o+x*#@%&"
PER_SAMPLE = "dollars_per_sample"
"""A column that people read per million of them."""
LOG_FROM = 8.0
"""An axis of positive values is logarithmic when its largest is this many times its smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one name; `joined` draws a line through them."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series over two columns of the table; the columns' names, with their units, title the axes."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]

    @property
    def x_log(self) -> bool:
        """Whether the x axis is logarithmic."""
        return _is_log([value for series in self.series for value in series.x])

    @property
    def y_log(self) -> bool:
        """Whether the y axis is logarithmic."""
        return _is_log([value for series in self.series for value in series.y])


def chart(title: str, groups: Mapping[str, Sequence[Mapping[str, Any]]], x: str, y: str, joined: str = "") -> Chart:
    """A chart of columns `x` and `y` of groups of rows. Lines join the group called `joined`, or all when empty."""
    series = tuple(
        Series(
            name=name,
            x=tuple(float(row[x]) for row in rows),
            y=tuple(float(row[y]) for row in rows),
            joined=joined in ("", name),
        )
        for name, rows in groups.items()
    )
    return Chart(title=title, x=x, y=y, series=series)


def value_text(column: str, value: Any) -> str:
    """A value of a column for a person, in the unit that its name ends in."""
    if value is None or value == "":
        return "-"
    if isinstance(value, str):
        return value
    if column.endswith(BANDWIDTH):
        return format_bandwidth(value)
    if column.endswith("_bytes"):
        return format_bytes(value)
    if column.endswith("_s") and not column.endswith("_per_s"):
        return format_time(value)
    if column == PER_SAMPLE:
        return f"${1e6 * value:.4g}"
    if column.startswith("dollars_"):
        return f"${value:.4g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def column_title(column: str) -> str:
    """A column's name for a person: values by `value_text` carry their unit themselves."""
    if column == PER_SAMPLE:
        return "$/million samples"
    for ending, instead in ((BANDWIDTH, " bandwidth"), ("_per_s", "/s"), ("_per_sample", "/sample")):
        if column.endswith(ending):
            return column.removesuffix(ending).replace("_", " ") + instead
    return column.removesuffix("_s").removesuffix("_bytes").replace("_", " ")


def chart_text(chart: Chart, width: int = 68, height: int = 18) -> str:
    """The chart in `width` x `height` characters, a mark per point: the first series on top, the legend below."""
    xs, ys = _Scale.of(chart, "x", width), _Scale.of(chart, "y", height)
    grid = [[" "] * width for _ in range(height)]
    for number, series in reversed(list(enumerate(chart.series))):
        for x, y in zip(series.x, series.y, strict=True):
            grid[height - 1 - ys.cell(y)][xs.cell(x)] = MARKS[number % len(MARKS)]
    top, bottom = value_text(chart.y, ys.most), value_text(chart.y, ys.least)
    margin = max(len(top), len(bottom))
    labels = [top, *[""] * (height - 2), bottom]
    lines = [f"{label:>{margin}} |{''.join(row).rstrip()}" for label, row in zip(labels, grid, strict=True)]
    left, right = value_text(chart.x, xs.least), value_text(chart.x, xs.most)
    lines += [" " * margin + " +" + "-" * width, " " * (margin + 2) + left + right.rjust(width - len(left))]
    legend = "   ".join(f"{MARKS[i % len(MARKS)]} {series.name}" for i, series in enumerate(chart.series))
    scales = {(True, True): " (both logarithmic)", (True, False): " (x logarithmic)", (False, True): " (y logarithmic)"}
    title = f"{column_title(chart.y)} over {column_title(chart.x)}{scales.get((chart.x_log, chart.y_log), '')}"
    return "\n".join([title, *lines, " " * (margin + 2) + legend])


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to character cells."""

    least: float
    most: float
    log: bool
    cells: int

    @classmethod
    def of(cls, chart: Chart, axis: str, cells: int) -> _Scale:
        values = [value for series in chart.series for value in getattr(series, axis)]
        return cls(min(values, default=0.0), max(values, default=1.0), getattr(chart, f"{axis}_log"), cells)

    def cell(self, value: float) -> int:
        if self.least == self.most:
            return 0
        if self.log:
            share = log10(value / self.least) / log10(self.most / self.least)
        else:
            share = (value - self.least) / (self.most - self.least)
        return min(round(share * (self.cells - 1)), self.cells - 1)


def _is_log(values: Sequence[float]) -> bool:
    least, most = min(values, default=0.0), max(values, default=0.0)
    return least > 0 and most < inf and most / least >= LOG_FROM
