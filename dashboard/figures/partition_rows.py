"""Rows of bars under the folded network, each column's under its glyph, and the same bytes for other strategies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from dashboard.figures import svg
from dashboard.figures.partition_glyphs import layer_numbers
from dashboard.figures.partition_graph import LEFT, RIGHT, WIDTH, ColumnGrid
from dashboard.figures.shades import Shades
from dashboard.state.columns import Column, by_column
from dashboard.state.configuration import Configuration
from dashboard.state.flows import BETWEEN, Flows
from dashboard.state.simulating import Glance
from dashboard.words.kpis import missing, seconds_range
from dashboard.words.volume import ByteUnit, shown_unit, volume_unit
from simulator.taskgraph import Floats
from simulator.units import format_bytes, format_time

_BARS, _ROW = 44.0, 62.0
_UNEVEN = 1.15
"""Largest over mean from which a block's balance is written."""
_SIDE = RIGHT + 24
_NOTE_LETTERS = 150
"""Of a line beside a strategy that has no bars."""
_FAR = 3.0
"""Times the next highest column: a higher one would flatten all others."""
_ABOVE = 1.5
"""Times the next highest column: what a bar that is cut off stands for at its top."""
_SAID = 0.06
"""Share of the highest bar from which a bar has its number."""
LANE_HEIGHT, ROWS_HEIGHT, STRIP = 96.0, 4 * _ROW + 6, 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _BarRow:
    """A row of bars, one below each column, on one line; `room`: how high they may be. unit: None for seconds.

    most: what the highest bar stands for, as of `highest`; larger sizes are cut off.
    """

    columns: Sequence[Column]
    geometry: ColumnGrid
    floor: float
    most: float
    unit: ByteUnit | None
    room: float = 38.0

    @property
    def places(self) -> Iterator[tuple[Column, float]]:
        """Each column and its middle."""
        return zip(self.columns, self.geometry.middles, strict=True)

    def bars(self, sizes: Floats, kind: str) -> list[str]:
        """A bar of each size over its axis, with its number where it has room."""
        marks = []
        for (column, middle), size in zip(self.places, sizes.tolist(), strict=True):
            height = self.part(size, size)
            marks.append(self.axis(middle))
            if size > 0:
                words = f"{column.title}: {format_bytes(size) if self.unit else format_time(size)}"
                bar = self.rect(middle, max(height, 0.8), kind)
                marks.append(_picked(column, [bar, *self.breaks(middle, size)], words))
            marks += self.number(middle, size, height)
        return marks

    def stacked(self, sizes: Floats, kind: str) -> list[str]:
        """Bars of sizes (columns, 2), and in each what of it crosses between nodes."""
        marks = self.bars(sizes.sum(axis=1), f"{kind}-inside")
        for (column, middle), size in zip(self.places, sizes, strict=True):
            if size[BETWEEN] > 0:
                whole, between = float(size.sum()), float(size[BETWEEN])
                bar = self.rect(middle, self.part(between, whole), f"{kind}-between")
                words = f"{column.title}: {format_bytes(between)} between nodes, {format_bytes(whole - between)} inside"
                marks.append(_picked(column, [bar, *self.breaks(middle, whole)], words))
        return marks

    def axis(self, middle: float) -> str:
        half = self.geometry.pitch * 0.41
        return svg.line(middle - half, self.floor, middle + half, self.floor, class_="axis")

    def part(self, size: float, whole: float) -> float:
        """The height of a part of a bar that stands for `whole`."""
        return self.room * size / max(self.most, whole) if size else 0.0

    def rect(self, middle: float, height: float, kind: str, foot: float = 0.0) -> str:
        """A bar, or a part of one that begins at a height of `foot`."""
        wide = self.geometry.glyph * 0.72
        return svg.rect(middle - wide / 2, self.floor - foot - height, wide, height, class_=kind)

    def breaks(self, middle: float, size: float) -> list[str]:
        """Two slanted lines around a gap across a bar of that size, where it is cut off."""
        if size <= self.most * (1 + 1e-9):
            return []
        half, y = self.geometry.glyph * 0.36 + 2, self.floor - self.room * 0.78
        gap = f"M{svg.number(middle - half)} {svg.number(y)}L{svg.number(middle + half)} {svg.number(y - 5)}"
        return [svg.path(gap, class_=look, fill="none") for look in ("break", "break-gap")]

    def number(self, middle: float, size: float, height: float) -> list[str]:
        if self.unit is None or not 0 < size >= _SAID * self.most:
            return []
        words, y = self.unit.number(size), self.floor - height - 3
        return [svg.text(middle, y, words, class_="tiny ink", text_anchor="middle")]


def highest(rows: Sequence[Floats]) -> float:
    """What the highest bar of rows of sizes, (columns,) each, stands for: one far above all others is cut off."""
    sizes = np.sort(np.max(rows, axis=0))[::-1] if rows else np.zeros(1)
    first, second = float(sizes[0]), float(sizes[1]) if len(sizes) > 1 else 0.0
    return _ABOVE * second if 0 < _FAR * second < first else first


def _picked(column: Column, marks: list[str], words: str) -> str:
    """Marks of a column, which say `words` and select its layers."""
    return svg.group(marks, words, class_="pick", data_layers=layer_numbers(column.layers))


def balance(columns: Sequence[Column], flows: Flows) -> Floats:
    """Each column's largest compute seconds of a worker over the mean of all, shape (columns,); 1 without compute."""
    seconds = by_column(columns, flows.seconds)
    mean = seconds.mean(axis=1)
    return np.where(mean > 0, seconds.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0)


def rows(columns: Sequence[Column], flows: Flows, shades: Shades, geometry: ColumnGrid, top: float) -> list[str]:
    """Compute by device, activations cut, gradients and gathers, replicated memory."""
    cut, states = by_column(columns, flows.activation_bytes), by_column(columns, flows.state_bytes)
    replicated = by_column(columns, flows.replicated_bytes)
    same = highest([cut.sum(axis=1), states.sum(axis=1)])
    unit = volume_unit(flows.total_bytes)

    def row(number: int, most: float) -> _BarRow:
        floor = top + (number + 1) * _ROW - 8
        return _BarRow(columns=columns, geometry=geometry, floor=floor, most=most, unit=unit)

    marks = _compute(columns, flows, shades, geometry, top)
    synced = "gradients, gathers" if flows.gathered_bytes.any() else "gradients synced"
    words = ("activations cut", "there and back", "cut"), (synced, "same scale", "gradient")
    for number, ((title, note, kind), sizes) in enumerate(zip(words, (cut, states), strict=True), start=1):
        bars = row(number, same)
        marks += _heading(title, f"{unit.name}, {note}", bars.floor, f"{kind}-ink") + bars.stacked(sizes, kind)
        marks += _total(float(sizes.sum()), float(sizes[:, BETWEEN].sum()), bars.floor, unit)
    held = row(3, highest([replicated]))
    marks += _heading("replicated memory", f"{unit.name}, copies beyond one", held.floor, "ink")
    return [*marks, *held.bars(replicated, "replicated"), *_total(float(replicated.sum()), None, held.floor, unit)]


def lane(
    columns: Sequence[Column], flows: Flows, device: int, name: str, geometry: ColumnGrid, top: float
) -> list[str]:
    """What a selected device computes and receives in each column."""
    seconds = by_column(columns, flows.seconds[:, device])
    received = by_column(columns, flows.received_bytes[:, device])
    unit, marks = volume_unit(flows.total_bytes), list[str]()
    for number, (title, note, values, kind) in enumerate((
        (name, f"computes, to {format_time(float(seconds.max()))}", seconds, "device"),
        ("", f"receives, {unit.name}", received, "cut-inside"),
    )):  # fmt: skip
        row = _BarRow(
            columns=columns, geometry=geometry, floor=top + (number + 1) * 46 - 6, most=highest([values]),
            unit=unit if number else None, room=26.0,
        )  # fmt: skip
        marks += _heading(title, note, row.floor, "ink") + row.bars(values, kind)
    return marks


def strips(
    columns: Sequence[Column], drawn: Mapping[Configuration, Glance | None], geometry: ColumnGrid, top: float
) -> list[str]:
    """The same bytes under each strategy on one scale, the first one's shown with data parallel's dashed over it."""
    fitting = [(option, glance) for option, glance in drawn.items() if glance is not None and glance.fits]
    best_s = min((glance.step_s for _, glance in fitting), default=0.0)
    data = next((glance.by_layer for option, glance in fitting if option.strategy == "data"), None)
    dashed = None if data is None else by_column(columns, data).sum(axis=1)
    known = [each.by_layer for each in drawn.values() if each is not None and each.by_layer is not None]
    sums = [by_column(columns, sizes).sum(axis=1) for sizes in known]
    most, unit = highest(sums if dashed is None else [*sums, dashed]), shown_unit(drawn.values())
    marks = [
        svg.line(18, top, WIDTH - 18, top, class_="rule"),
        svg.text(20, top + 18, f"the same bytes under each strategy, in {unit.name}; dashed: data parallelism's",
                 class_="heading"),
    ]  # fmt: skip
    for x, words in ((990.0, "bytes"), (1043.0, "step"), (1084.0, "load")):
        marks.append(svg.text(x, top + 18, words, class_="dim small", text_anchor="end"))
    for number, (option, glance) in enumerate(drawn.items()):
        floor = top + 30 + (number + 1) * STRIP - 8
        row = _BarRow(columns=columns, geometry=geometry, floor=floor, most=most, unit=unit, room=26.0)
        shown = number == 0
        marks += [svg.rect(8, floor - 30, WIDTH - 16, STRIP - 2, class_="band")] if shown else []
        look = f"{'strong' if shown else 'plain'} small"
        marks.append(svg.text(20, floor - 4, option.planner, class_=look))
        if glance is None or glance.by_layer is None:
            counted = f"{format_time(glance.step_s)}; too many tasks to draw" if glance and glance.ran else ""
            lines = wrap(counted or missing(glance), _NOTE_LETTERS)
            first = floor - 4 - 6 * (len(lines) - 1)
            marks += [svg.text(LEFT + 6, first + 12 * i, line, class_="dim small") for i, line in enumerate(lines)]
            continue
        marks += _figures(option.planner, glance, floor, unit, shown, glance.step_s == best_s)
        marks += _strip(row, option.planner, by_column(columns, glance.by_layer), dashed if shown else None)
    return marks


def _figures(name: str, glance: Glance, floor: float, unit: ByteUnit, shown: bool, best: bool) -> list[str]:
    """Bytes, step and load of a strategy; pointing at the step says its range."""
    words = unit.words(glance.total_bytes), format_time(glance.step_s), f"{glance.load_balance_ratio:.2f}"
    looks = zip((990.0, 1043.0, 1084.0), words, (shown, best, False), strict=True)
    moved, step, load = (
        svg.text(x, floor - 4, each, class_="strong small" if bold else "small", text_anchor="end")
        for x, each, bold in looks
    )
    ends = seconds_range(glance.interval_s)
    return [moved, svg.group([step], f"{name}: 90% sure of {ends}") if ends else step, load]


def _strip(row: _BarRow, name: str, sizes: Floats, dashed: Floats | None) -> list[str]:
    """A bar per column of activations over states, sizes (columns, 2); dashed: bytes (columns,) to be drawn over."""
    marks = []
    for i, (column, middle) in enumerate(row.places):
        cut, states = sizes[i].tolist()
        whole = cut + states
        foot, rest = (row.part(size, whole) for size in (states, cut))
        bars = [row.rect(middle, foot, "gradient-between"), row.rect(middle, rest, "cut-between", foot)]
        words = f"{name}, {column.title}: {format_bytes(cut)} of activations, {format_bytes(states)} of states"
        marks += [row.axis(middle), _picked(column, [*bars, *row.breaks(middle, whole)], words)]
        other = 0.0 if dashed is None else float(dashed[i])
        if whole <= row.most and other > max(whole * 1.02, 0.01 * row.most):
            marks.append(row.rect(middle, row.part(other, other), "dashed"))
            marks += row.breaks(middle, other)
        else:
            marks += row.number(middle, whole, foot + rest - 1)
    return marks


def _compute(columns: Sequence[Column], flows: Flows, shades: Shades, geometry: ColumnGrid, top: float) -> list[str]:
    seconds = by_column(columns, flows.seconds)  # (columns, workers)
    bars = np.stack([seconds[:, list(group)].max(axis=1) for group in shades.bars], axis=1)  # (columns, bars)
    worst, floor = float(bars.max()), top + _ROW - 8
    uneven = balance(columns, flows)
    of = "by device" if shades.bar_words == "device" else f"slowest of each {shades.bar_words}"
    marks = _heading("compute", of, floor, "ink", f"to {format_time(worst)}; max / mean")
    wide = geometry.pitch * 0.82 / bars.shape[1]
    for i, (column, middle) in enumerate(zip(columns, geometry.middles, strict=True)):
        left = middle - geometry.pitch * 0.41
        marks.append(svg.line(left, floor, left + geometry.pitch * 0.82, floor, class_="axis"))
        heights = _BARS * bars[i] / worst if worst else bars[i]
        cells = [
            svg.rect(left + wide * k, floor - height, max(wide - 0.4, 0.6), height, fill=shades.colours[group[0]],
                     class_="cell", data_devices=" ".join(map(str, group)))
            for k, (group, height) in enumerate(zip(shades.bars, heights.tolist(), strict=True)) if height > 0.05
        ]  # fmt: skip
        busy = int((seconds[i] > 0).sum())
        words = (
            f"{column.title}: the most loaded device computes {format_time(float(seconds[i].max()))}, "
            f"{uneven[i]:.2f} of the mean; {busy} of {len(shades.node)} devices work"
        )
        marks.append(_picked(column, cells, words))
        if uneven[i] >= _UNEVEN:
            at, digits = floor - float(heights.max()) - 3, 1 if uneven[i] < 10 else 0
            marks.append(svg.text(middle, at, f"{uneven[i]:.{digits}f}", class_="tiny ink", text_anchor="middle"))
    return marks + _whole_step(flows, shades, floor)


def _whole_step(flows: Flows, shades: Shades, floor: float) -> list[str]:
    """Each bar's compute of the whole step, with the mean as a line."""
    totals = flows.seconds.sum(axis=0)  # (workers,)
    bars = [float(totals[list(group)].max()) for group in shades.bars]
    most, wide = max(bars) or 1.0, 112.0 / len(bars)
    marks = [
        svg.rect(_SIDE + wide * k, floor - 46 * value / most, max(wide - 0.5, 0.6), 46 * value / most,
                 fill=shades.colours[group[0]], class_="cell pick", data_devices=" ".join(map(str, group)),
                 data_device=group[0] if len(group) == 1 else None)
        for k, (group, value) in enumerate(zip(shades.bars, bars, strict=True))
    ]  # fmt: skip
    level = floor - 46 * float(totals.mean()) / most
    mean = svg.line(_SIDE - 3, level, _SIDE + 115, level, class_="mean")
    return [*marks, mean, svg.text(_SIDE + 118, level + 3, "mean", class_="dim tiny")]


def _heading(title: str, note: str, floor: float, ink: str, more: str = "") -> list[str]:
    above = 12 if more else 0
    marks = [
        svg.text(20, floor - 16 - above, title, class_=f"heading {ink}"),
        svg.text(20, floor - 3 - above, note, class_="dim tiny"),
    ]
    return [*marks, svg.text(20, floor - 3, more, class_="dim tiny")] if more else marks


def _total(size: float, between: float | None, floor: float, unit: ByteUnit) -> list[str]:
    marks = [svg.text(_SIDE, floor - 14, unit.words(size), class_="total")]
    if between is not None and size:
        marks.append(svg.text(_SIDE, floor - 1, f"{unit.words(between)} between nodes", class_="dim tiny"))
    return marks
