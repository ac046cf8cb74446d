"""A sweep: one quantity over parameters, the trade-off of two, and all of it at once; and the steps of ranked plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

from dashboard.figures.shades import CIVIDIS
from dashboard.figures.style import (
    FORWARD,
    IDLE,
    LEGEND_ABOVE,
    LINES,
    NAMES,
    OUTLINE,
    Figure,
    colour_bar,
    figure,
    heatmap,
    log_axis,
    message,
    trade_off_line,
    with_table,
)
from dashboard.words.sweep import QUANTITIES, axis_title, expected
from simulator.sweep.chart import value_text
from simulator.sweep.queries import pareto

Row = Mapping[str, Any]
_OUTCOMES = ("step_s", "peak_memory_bytes", "communication_bytes", "bubble_ratio", "load_balance_ratio")
_SHADES = CIVIDIS[-2::-1]  # the lightest would not be seen
_PALE = "rgba(150,150,150,0.18)"
_SQUEEZED = 8.0
"""Times the least: an axis to more is logarithmic."""
MOST_BARS = 12


def quantity_over_parameters(rows: Sequence[Row], swept: Sequence[str], quantity: str) -> Figure:
    """Lines over the first numeric parameter, one per value of the others; a heatmap where two numbers are swept."""
    rows = [row for row in rows if row.get(quantity) is not None]
    numeric = [name for name in swept if all(_is_number(row.get(name)) for row in rows)]
    if not rows:
        return message("no point has finished yet")
    x = numeric[0] if numeric else swept[0]
    if len(numeric) >= 2 and "strategy" not in swept:
        drawn = _heatmap(rows, numeric[0], numeric[1], quantity)
    else:
        drawn = _lines(rows, x, [name for name in swept if name != x], quantity)
    return _with_rows(drawn, rows, (*swept, quantity))


def trade_off(rows: Sequence[Row], x: str, y: str) -> Figure:
    """Every point by two quantities; the ones that no other beats in both are joined."""
    rows = [row for row in rows if row.get(x) is not None and row.get(y) is not None]
    if not rows:
        return message("no point has both quantities")
    names = sorted({str(row["strategy"]) for row in rows})
    data = [_dots([row for row in rows if row["strategy"] == n], n, x, y, LINES[i % 8]) for i, n in enumerate(names)]
    front = pareto([dict(row) for row in rows], x, y)
    ends = ([row[name] * QUANTITIES[name].factor for row in front] for name in (x, y))
    data.append(trade_off_line(*ends))
    drawn = figure(
        data,
        legend=LEGEND_ABOVE,
        margin={"l": 48, "r": 12, "t": 34, "b": 38},
        xaxis={**_wide(rows, x), "title": QUANTITIES[x].title},
        yaxis={**_wide(rows, y), "title": QUANTITIES[y].title},
    )
    return _with_rows(drawn, rows, ("strategy", x, y))


def _wide(rows: Sequence[Row], name: str) -> dict[str, Any]:
    """A logarithmic axis where the least would be squeezed into a corner otherwise."""
    values = [row[name] * QUANTITIES[name].factor for row in rows]
    return log_axis(values) if 0 < _SQUEEZED * min(values) < max(values) else {}


def _with_rows(drawn: Figure, rows: Sequence[Row], columns: Sequence[str]) -> Figure:
    """The figure with these columns of the sweep's table, in its units."""
    names = ("number", *dict.fromkeys(columns))
    return with_table(drawn, names, ([row.get(name) for name in names] for row in rows))


def parallel(rows: Sequence[Row], swept: Sequence[str], brushed: frozenset[int] = frozenset()) -> Figure:
    """Parallel coordinates: what was swept and what came out; a line per point, darker for a shorter step.

    brushed: numbers of the points that a user has picked, the others are drawn pale.

    Drawn with plain lines: Plotly's own kind needs WebGL and text evaluated as code, which the page's policy forbids.
    """
    rows = [row for row in rows if row.get("step_s") is not None]
    if not rows:
        return message("no point has finished yet")
    names = [name for name in (*swept, *_OUTCOMES) if any(row.get(name) is not None for row in rows)]
    axes = [_axis(rows, name) for name in names]
    order = sorted(range(len(rows)), key=lambda i: -rows[i]["step_s"])
    data = []
    for bin_, colour in enumerate(_SHADES):
        shade = order[bin_ * len(order) // len(_SHADES) : (bin_ + 1) * len(order) // len(_SHADES)]
        for picked in (False, True):
            lines = [i for i in shade if (not brushed or rows[i]["number"] in brushed) == picked]
            data.append(_strokes(rows, lines, axes, colour if picked else _PALE))
    data.append(_colour_bar([row["step_s"] for row in rows]))
    notes = [note for x, axis in enumerate(axes) for note in _ends(x, *axis[1])]
    titles = [axis_title(name).partition(" (")[0] for name in names]  # the ends of an axis say their units
    ticks = {"tickvals": list(range(len(names))), "ticktext": titles, "side": "top", "range": [-0.4, len(names) - 0.6]}
    return figure(
        data,
        annotations=notes,
        margin={"l": 20, "r": 20, "t": 50, "b": 24},
        dragmode="select",
        xaxis=ticks,
        yaxis={"visible": False, "range": [-0.12, 1.12]},
    )


def _strokes(rows: Sequence[Row], lines: Sequence[int], axes: Sequence[Any], colour: str) -> dict[str, Any]:
    """The lines of some rows, with a mark on every axis: only marks can be picked, and only where hovering is not
    skipped."""
    line, marker = {"color": colour, "width": 1.6}, {"color": colour, "size": 4}
    return {
        "type": "scatter", "mode": "lines+markers", "line": line, "marker": marker, "hoverinfo": "none",
        "unselected": {"marker": {"opacity": 1}},
        "x": [x for _ in lines for x in (*range(len(axes)), None)],
        "y": [y for i in lines for y in (*(axis[0][i] for axis in axes), None)],
        "customdata": [rows[i]["number"] for i in lines for _ in range(len(axes) + 1)],
    }  # fmt: skip


def _colour_bar(values: Sequence[float]) -> dict[str, Any]:
    """A trace without marks that shows what the shades of the lines mean."""
    scale = [[i / (len(_SHADES) - 1), colour] for i, colour in enumerate(_SHADES[::-1])]
    quantiles, last, step = sorted(values), len(values) - 1, QUANTITIES["step_s"]
    parts = [i / (min(last, 4) or 1) for i in range(min(last, 4) + 1)]
    ticks = {step.number(quantiles[round(part * last)]): part for part in parts}
    where = {"len": 0.85, "y": 0.42, "tickvals": list(ticks.values())}
    bar = colour_bar(step.title, ticktext=list(ticks), **where)
    marker = {"color": [0, 1], "cmin": 0, "cmax": 1, "colorscale": scale, "showscale": True, "colorbar": bar}
    empty = {"x": [None, None], "y": [None, None], "hoverinfo": "skip"}
    return {"type": "scatter", "mode": "markers", "marker": marker, **empty}


def _axis(rows: Sequence[Row], name: str) -> tuple[list[float | None], tuple[str, str]]:
    """Each row's height between 0 and 1 (None where it has no value), and what stands at both ends.

    Numbers that span a factor of ten stand by their logarithms, as a sweep by doublings would crowd at one end.
    """
    values = [row.get(name) for row in rows]
    known = sorted({v for v in values if v is not None}, key=lambda v: (isinstance(v, str), v))
    low, high = known[0], known[-1]
    if _is_number(low) and _is_number(high):
        scaled: Callable[[float], float] = log if low > 0 and high / low >= 10 else float
        width = scaled(high) - scaled(low)
        heights = [None if v is None else (scaled(v) - scaled(low)) / width if width else 0.5 for v in values]
    else:
        heights = [None if v is None else known.index(v) / max(len(known) - 1, 1) for v in values]
    return heights, (_end_words(name, low), _end_words(name, high))


def _end_words(name: str, value: Any) -> str:
    """A value in the unit of the table."""
    return QUANTITIES[name].words(value) if name in QUANTITIES else value_text(name, value)


def _ends(x: int, low: str, high: str) -> list[dict[str, Any]]:
    common = {"x": x, "showarrow": False, "font": {"size": 11}}
    return [{**common, "y": -0.07, "text": low}, {**common, "y": 1.07, "text": high}]


def _lines(rows: Sequence[Row], x: str, others: Sequence[str], quantity: str) -> Figure:
    title, factor = QUANTITIES[quantity].title, QUANTITIES[quantity].factor
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(", ".join(value_text(name, row.get(name)) for name in others) or "all", []).append(row)
    data = []
    for i, (name, line) in enumerate(sorted(groups.items())):
        line = sorted(line, key=lambda row: row[x])
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": name, "x": [row[x] for row in line],
            "y": [row[quantity] * factor for row in line], "customdata": [row["number"] for row in line],
            "line": {"color": LINES[i % 8], "dash": ("solid", "dash", "dot")[i // 8 % 3]},
            "text": [expected(row) if quantity == "step_s" else "" for row in line],
            "hovertemplate": f"{name}: {axis_title(x)} %{{x}}, {title} %{{y:,.4~r}}%{{text}}<extra></extra>",
        })  # fmt: skip
    return figure(
        data,
        legend=LEGEND_ABOVE,
        margin={"l": 48, "r": 12, "t": 34, "b": 38},
        xaxis={"title": axis_title(x), **_scale(x, [row[x] for row in rows])},
        yaxis={"title": title, "rangemode": "tozero"},
    )


def _scale(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Logarithmic for numbers that span a lot, with a tick at each of a few values."""
    distinct = sorted(set(values))
    if not all(map(_is_number, values)):
        return {"type": "category"}
    wide = distinct[0] > 0 and distinct[-1] > 8 * distinct[0]
    if len(distinct) > 12:
        return {"type": "log" if wide else "linear"}
    ticks = [value_text(name, value) for value in distinct]
    return {"type": "log" if wide else "linear", "tickvals": distinct, "ticktext": ticks}


def _heatmap(rows: Sequence[Row], x: str, y: str, quantity: str) -> Figure:
    title, factor = QUANTITIES[quantity].title, QUANTITIES[quantity].factor
    shows_step = quantity == "step_s"
    xs, ys = (sorted({row[name] for row in rows}) for name in (x, y))
    cells: dict[tuple[Any, Any], Row] = {}
    for row in sorted(rows, key=lambda row: row[quantity]):
        cells.setdefault((row[x], row[y]), row)
    z = [[cells[a, b][quantity] * factor if (a, b) in cells else None for a in xs] for b in ys]
    texts = [[expected(cells[a, b]) if shows_step and (a, b) in cells else "" for a in xs] for b in ys]
    columns, lines = [value_text(x, a) for a in xs], [value_text(y, b) for b in ys]
    hover = f"{axis_title(x)} %{{x}}, {axis_title(y)} %{{y}}: {title} %{{z:,.4~r}}%{{text}}"
    heat = heatmap(columns, lines, z, colour_bar(title), hover, xgap=1, ygap=1, text=texts)
    axes = ({"title": axis_title(name), **NAMES} for name in (x, y))
    return figure([heat], xaxis=next(axes), yaxis=next(axes))


def _dots(rows: Sequence[Row], name: str, x: str, y: str, colour: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": name,
        "x": [row[x] * QUANTITIES[x].factor for row in rows], "y": [row[y] * QUANTITIES[y].factor for row in rows],
        "customdata": [row["number"] for row in rows],
        "marker": {
            "color": colour, "size": 8,
            "line": {"width": [0 if row.get("fits") else 2 for row in rows], "color": OUTLINE},
        },
        "text": [expected(row) for row in rows],
        "hovertemplate": f"{name}: {QUANTITIES[x].title} %{{x:,.4~r}}%{{text}}, "
                         f"{QUANTITIES[y].title} %{{y:,.4~r}}<extra></extra>",
    }  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def steps(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A bar for each of the first plans by its rank, the best on top; grey where it does not fit."""
    shown = rows[:MOST_BARS][::-1]  # the last one stands on top
    if not shown:
        return message("no plan is simulated yet")
    step = QUANTITIES["step_s"]
    ends = [[(row[end] or row["step_s"]) * step.factor for end in ("step_low_s", "step_high_s")] for row in shown]
    steps_ms = [row["step_s"] * step.factor for row in shown]
    bars = {
        "type": "bar", "orientation": "h", "y": [f"{row['number']}" for row in shown], "x": steps_ms,
        "marker": {"color": [FORWARD if row["fits"] else IDLE for row in shown]},
        "error_x": {
            "type": "data", "symmetric": False, "color": OUTLINE, "thickness": 1.2, "width": 3,
            "array": [high - middle for middle, (_, high) in zip(steps_ms, ends, strict=True)],
            "arrayminus": [middle - low for middle, (low, _) in zip(steps_ms, ends, strict=True)],
        },
        "text": [f"{row['title']}: {step.words(row['step_s'])}{expected(row)}" for row in shown],
        "textposition": "none", "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
    drawn = figure(
        [bars],
        xaxis={"title": step.title, "rangemode": "tozero"},
        yaxis={"type": "category", "title": "rank", "showgrid": False},
    )
    columns = ("number", "title", "step_s", "step_low_s", "step_high_s")
    return with_table(drawn, columns, ([row[name] for name in columns] for row in shown[::-1]))
