"""Rows of bars under the folded network, each column's under its glyph, and the same bytes for other strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from dashboard.figures import svg
from dashboard.figures.bar_scale import BarScale
from dashboard.figures.partition_graph import LEFT, RIGHT, WIDTH, ColumnGrid
from dashboard.figures.shades import Shades
from dashboard.state.columns import Column, by_column
from dashboard.state.flows import BETWEEN, INSIDE, Flows
from dashboard.words.volume import ByteUnit, volume_unit
from simulator.taskgraph import Floats
from simulator.units import format_bytes, format_time

_BARS, _ROW, _STRIP = 44.0, 62.0, 40.0
_UNEVEN = 1.15
"""Largest over mean from which a block's balance is written."""
_SIDE = RIGHT + 24
_NOTE_LETTERS = 150
"""Of a line beside a strategy that has no bars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A strategy's bytes by layer, shape (layers, 2): activations cut, gradients; and its figures in words.

    expected: between which times its step is expected.

    Without bytes (None) `note` says why there are none yet.
    """

    name: str
    bytes: Floats | None = None
    total: str = ""
    step: str = ""
    expected: str = ""
    load: str = ""
    note: str = ""
    best: bool = False


def balance(columns: Sequence[Column], flows: Flows) -> Floats:
    """Each column's largest compute seconds of a worker over the mean of all, shape (columns,); 1 without compute."""
    seconds = by_column(columns, flows.seconds)
    mean = seconds.mean(axis=1)
    return np.where(mean > 0, seconds.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0)


def rows(columns: Sequence[Column], flows: Flows, shades: Shades, geometry: ColumnGrid, top: float) -> list[str]:
    """Compute by device, activations cut, gradients, replicated memory."""
    cut, gradients = by_column(columns, flows.activation_bytes), by_column(columns, flows.gradient_bytes)
    replicated = by_column(columns, flows.replicated_bytes)
    same = BarScale.of([cut.sum(axis=1), gradients.sum(axis=1)])
    unit = volume_unit(flows.total_bytes)
    marks = _compute(columns, flows, shades, geometry, top)
    words = ("activations cut", "there and back", "cut"), ("gradients synced", "same scale", "gradient")
    for number, ((title, note, kind), sizes) in enumerate(zip(words, (cut, gradients), strict=True)):
        floor = top + (number + 2) * _ROW - 8
        marks += _heading(title, f"{unit.name}, {note}", floor, f"{kind}-ink")
        marks += _stacked(columns, sizes, geometry, floor, same, unit, kind)
        marks += _total(float(sizes.sum()), float(sizes[:, BETWEEN].sum()), floor, unit)
    floor, held = top + 4 * _ROW - 8, BarScale.of([replicated])
    marks += _heading("replicated memory", f"{unit.name}, copies beyond one", floor, "ink")
    for column, size, middle in zip(columns, replicated.tolist(), geometry.middles, strict=True):
        marks += _bar(column, size, held, middle, geometry, floor, "replicated", unit)
    return [*marks, *_total(float(replicated.sum()), None, floor, unit)]


def rows_height() -> float:
    """What `rows` takes."""
    return 4 * _ROW + 6


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
        floor = top + (number + 1) * 46 - 6
        marks += _heading(title, note, floor, "ink")
        for column, value, middle in zip(columns, values.tolist(), geometry.middles, strict=True):
            most = BarScale.of([values])
            marks += _bar(column, value, most, middle, geometry, floor, kind, unit if number else None, room=26)
    return marks


LANE_HEIGHT = 96.0


def strips(
    columns: Sequence[Column], drawn: Sequence[Strip], data_parallel: Floats | None, geometry: ColumnGrid, top: float
) -> list[str]:
    """The same bytes under each strategy on one scale, the first one's shown with data parallel's dashed over it."""
    tables = [by_column(columns, strip.bytes) for strip in drawn if strip.bytes is not None]
    dashed = None if data_parallel is None else by_column(columns, data_parallel).sum(axis=1)
    sums = [table.sum(axis=1) for table in tables] + ([] if dashed is None else [dashed])
    scale = BarScale.of(sums)
    unit = volume_unit(float(tables[0].sum()) if tables else 0.0)
    marks = [
        svg.line(18, top, WIDTH - 18, top, class_="rule"),
        svg.text(20, top + 18, f"the same bytes under each strategy, in {unit.name}; dashed: data parallelism's",
                 class_="heading"),
    ]  # fmt: skip
    for x, words in ((990.0, "bytes"), (1043.0, "step"), (1084.0, "load")):
        marks.append(svg.text(x, top + 18, words, class_="dim small", text_anchor="end"))
    for number, strip in enumerate(drawn):
        floor = top + 30 + (number + 1) * _STRIP - 8
        marks += _strip(columns, strip, dashed if number == 0 else None, geometry, floor, scale, unit, number == 0)
    return marks


def strips_height(count: int) -> float:
    """What `strips` takes."""
    return 36 + count * _STRIP


def _strip(
    columns: Sequence[Column], strip: Strip, dashed: Floats | None, geometry: ColumnGrid, floor: float, scale: BarScale,
    unit: ByteUnit, shown: bool,
) -> list[str]:  # fmt: skip
    strong = "strong" if shown else "plain"
    marks = [svg.rect(8, floor - 30, WIDTH - 16, _STRIP - 2, class_="band")] if shown else []
    marks.append(svg.text(20, floor - 4, strip.name, class_=f"{strong} small"))
    for x, words, bold in ((990.0, strip.total, shown), (1043.0, strip.step, strip.best), (1084.0, strip.load, False)):
        marks.append(svg.text(x, floor - 4, words, class_="strong small" if bold else "small", text_anchor="end"))
    if strip.expected:
        marks[-2] = svg.group([marks[-2]], f"{strip.name}: 90% sure of {strip.expected}")
    if strip.bytes is None:
        lines = wrap(strip.note, _NOTE_LETTERS)
        first = floor - 4 - 6 * (len(lines) - 1)
        return marks + [svg.text(LEFT + 6, first + 12 * i, line, class_="dim small") for i, line in enumerate(lines)]
    sizes = by_column(columns, strip.bytes)  # (columns, activations and gradients)
    for i, (column, middle) in enumerate(zip(columns, geometry.middles, strict=True)):
        left, wide = middle - geometry.glyph * 0.36, geometry.glyph * 0.72
        half = geometry.pitch * 0.36
        marks.append(svg.line(middle - half, floor, middle + half, floor, class_="axis"))
        whole = float(sizes[i].sum())
        heights = [scale.part(float(size), whole, 26) for size in (sizes[i, 1], sizes[i, 0])]
        bars = [svg.rect(left, floor - heights[0], wide, heights[0], class_="gradient-between"),
                svg.rect(left, floor - sum(heights), wide, heights[1], class_="cut-between"),
                *scale.break_marks(whole, left, wide, floor, 26)]  # fmt: skip
        activations, gradients = (format_bytes(float(size)) for size in sizes[i])
        words = f"{strip.name}, {column.title}: {activations} of activations, {gradients} of gradients"
        marks.append(svg.group(bars, words, class_="pick", data_layers=" ".join(map(str, column.layers))))
        if dashed is not None and whole <= scale.most and dashed[i] > max(whole * 1.02, 0.01 * scale.most):
            height = scale.part(float(dashed[i]), float(dashed[i]), 26)
            marks.append(svg.rect(left, floor - height, wide, height, class_="dashed"))
            marks += scale.break_marks(float(dashed[i]), left, wide, floor, 26)
        elif scale.is_said(whole):
            at = floor - sum(heights) - 2
            marks.append(svg.text(middle, at, unit.number(whole), class_="tiny ink", text_anchor="middle"))
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
        marks.append(svg.group(cells, words, class_="pick", data_layers=" ".join(map(str, column.layers))))
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


def _stacked(
    columns: Sequence[Column], sizes: Floats, geometry: ColumnGrid, floor: float, scale: BarScale, unit: ByteUnit,
    kind: str,
) -> list[str]:  # fmt: skip
    marks = []
    for column, size, middle in zip(columns, sizes, geometry.middles, strict=True):
        whole = float(size.sum())
        marks += _bar(column, whole, scale, middle, geometry, floor, f"{kind}-inside", unit)
        if size[BETWEEN] > 0:
            height = scale.part(float(size[BETWEEN]), whole, 38)
            between, inside = format_bytes(float(size[BETWEEN])), format_bytes(float(size[INSIDE]))
            words = f"{column.title}: {between} between nodes, {inside} inside"
            left, wide = middle - geometry.glyph * 0.36, geometry.glyph * 0.72
            bar = svg.rect(left, floor - height, wide, height, class_=f"{kind}-between")
            bars = [bar, *scale.break_marks(whole, left, wide, floor, 38)]
            marks.append(svg.group(bars, words, class_="pick", data_layers=" ".join(map(str, column.layers))))
    return marks


def _bar(
    column: Column, size: float, scale: BarScale, middle: float, geometry: ColumnGrid, floor: float, kind: str,
    unit: ByteUnit | None, *, room: float = 38,
) -> list[str]:  # fmt: skip
    height = scale.part(size, size, room)
    left, wide = middle - geometry.glyph * 0.36, geometry.glyph * 0.72
    marks = [svg.line(middle - geometry.pitch * 0.41, floor, middle + geometry.pitch * 0.41, floor, class_="axis")]
    if size > 0:
        words = f"{column.title}: {format_bytes(size) if unit else format_time(size)}"
        bar = svg.rect(left, floor - max(height, 0.8), wide, max(height, 0.8), class_=kind)
        bars = [bar, *scale.break_marks(size, left, wide, floor, room)]
        marks.append(svg.group(bars, words, class_="pick", data_layers=" ".join(map(str, column.layers))))
    if unit and scale.is_said(size):
        marks.append(svg.text(middle, floor - height - 3, unit.number(size), class_="tiny ink", text_anchor="middle"))
    return marks
