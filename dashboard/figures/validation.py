"""Predicted against actual runs: a scatter, signed errors in groups, and the error over something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log10
from typing import Any

from dashboard.figures.style import (
    GRID,
    INK,
    LEGEND_ABOVE,
    LINES,
    OUTLINE,
    Figure,
    figure,
    log_axis,
    message,
    with_table,
)
from dashboard.state.validations import Group, PublishedSet
from simulator.units import format_time
from traces.results.validations import ValidatedRun

SHAPES = ("circle", "diamond", "square")
CLOSE = 0.10
"""The band around a perfect prediction."""
_BAND = "rgba(128,128,128,0.14)"
_MARGIN = {"l": 56, "r": 12, "t": 12, "b": 42}


def predicted_against_actual(groups: Sequence[Group], selected: str | None = None) -> Figure:
    """Step times in ms, both axes logarithmic, the diagonal with a band of CLOSE around it."""
    groups = [_calm_first(group) for group in groups]
    data = [
        _dots(group, i, [o.actual_s * 1e3 for o in group.outcomes], [o.predicted_s * 1e3 for o in group.outcomes],
              selected, "actual %{x:,.4~r} ms, predicted %{y:,.4~r} ms")
        for i, group in enumerate(groups)
    ]  # fmt: skip
    return _with_runs(_around_diagonal(data, legend=LEGEND_ABOVE), groups)


def published_steps(sets: Sequence[PublishedSet]) -> Figure:
    """Steps on GPUs that others measured and published, as `predicted_against_actual`; a colour and shape for each."""
    data = []
    for i, each in enumerate(sets):
        words = [f"{step.name}{f' ({step.note})' if step.note else ''}" for step in each.rows]
        x, y = [step.measured_s * 1e3 for step in each.rows], [step.predicted_s * 1e3 for step in each.rows]
        data.append(_points(each.title, i, x, y, words, "measured %{x:,.4~r} ms, predicted %{y:,.4~r} ms"))
    rows = ((each.title, step.name, step.measured_s, step.predicted_s) for each in sets for step in each.rows)
    return with_table(_around_diagonal(data), ("measured_by", "step", "measured_s", "predicted_s"), rows)


def _around_diagonal(data: list[dict[str, Any]], **layout: Any) -> Figure:
    seen = [value for trace in data for value in (*trace["x"], *trace["y"])]
    if not seen:
        return message("no runs")
    ends = [min(seen) / 1.15, max(seen) * 1.15]
    band = {
        "type": "scatter", "mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": _BAND,
        "hoverinfo": "skip", "showlegend": False, "x": [*ends, *ends[::-1]],
        "y": [*(end * (1 + CLOSE) for end in ends), *(end * (1 - CLOSE) for end in ends[::-1])],
    }  # fmt: skip
    diagonal = {
        "type": "scatter", "mode": "lines", "line": {"color": OUTLINE, "dash": "dot", "width": 1.2}, "x": ends,
        "y": ends, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip
    axis = {**log_axis(ends, lambda ms: format_time(ms / 1e3)), "range": [log10(end) for end in ends]}
    return figure(
        [band, diagonal, *data],
        margin=_MARGIN,
        xaxis={**axis, "title": "actual step"},
        yaxis={**axis, "title": "predicted step"},
        **layout,
    )


def errors(groups: Sequence[Group], selected: str | None = None) -> Figure:
    """A bar per run, its signed error; groups beside each other, each worst first, with the mean of its absolutes."""
    if not groups:
        return message("no runs")
    data, ticks, notes, at = [], [], [], 0
    for i, group in enumerate(groups):
        places = list(range(at, at + len(group.outcomes)))
        data.append({
            "type": "bar", "x": places, "y": [outcome.error * 100 for outcome in group.outcomes], "name": group.name,
            "marker": {"color": LINES[i % 8], "line": _outlines(group, selected),
                       "pattern": {"shape": ["/" if outcome.disturbed else "" for outcome in group.outcomes]}},
            "customdata": _names(group), "hovertemplate": "%{customdata}: %{y:+.1f}%<extra></extra>",
        })  # fmt: skip
        ticks.append((places[0] + places[-1]) / 2)
        notes.append({
            "x": ticks[-1], "y": 1.0, "yref": "paper", "yanchor": "bottom", "showarrow": False, "font": {"size": 11},
            "text": f"{group.mean_absolute_error:.0%}",
        })  # fmt: skip
        at = places[-1] + 2
    notes.append({"x": 0, "xref": "paper", "xanchor": "right", "y": 1.0, "yref": "paper", "yanchor": "bottom",
                  "showarrow": False, "font": {"size": 11}, "text": "mean "})  # fmt: skip
    drawn = figure(
        data,
        bargap=0.12,
        annotations=notes,
        shapes=[_zone()],
        margin={**_MARGIN, "t": 26, "b": 70},
        xaxis={"tickvals": ticks, "ticktext": [group.name for group in groups], "showgrid": False},
        yaxis={"ticksuffix": "%", "title": "predicted / actual − 1", "zeroline": True, "zerolinecolor": INK},
    )
    return _with_runs(drawn, groups)


Read = Callable[[ValidatedRun], float | None]
QUANTITIES: Mapping[str, tuple[str, Read, Read]] = {
    "volume": (
        "bytes counted on the wire (MiB)",
        lambda o: o.counted_bytes / 2**20 if o.predicted_bytes else None, lambda o: o.bytes_error * 100,
    ),
    "memory": (
        "memory measured, fullest rank (MiB)",
        lambda o: o.actual_memory_bytes / 2**20 if o.actual_memory_bytes else None,
        lambda o: (o.predicted_memory_bytes / o.actual_memory_bytes - 1) * 100 if o.actual_memory_bytes else None,
    ),
    "load": ("processes in the run queue as the run began", lambda o: o.load, lambda o: o.error * 100),
}  # fmt: skip
"""What an error stands over: (name of the axis, position, error in per cent)."""


def error_over(groups: Sequence[Group], quantity: str, selected: str | None = None) -> Figure:
    """The signed error of volume, memory or step over their size, or over the machine's load."""
    title, position, error = QUANTITIES[quantity]
    data = []
    for i, group in enumerate(groups):
        known = replace(_calm_first(group), outcomes=tuple(o for o in group.outcomes if position(o) is not None))
        x, y = ([read(o) for o in known.outcomes] for read in (position, error))
        data.append(_dots(known, i, x, y, selected, "%{x:,.4~r}, error %{y:+.1f}%"))
    if not any(trace["x"] for trace in data):
        return message("nothing was counted in these runs")
    sizes = log_axis(x for trace in data for x in trace["x"])
    scale = {"type": "linear", "rangemode": "tozero"} if quantity == "load" else sizes
    drawn = figure(
        data,
        shapes=[_zone()],
        margin=_MARGIN,
        xaxis={"title": title, **scale},
        yaxis={"ticksuffix": "%", "zeroline": True, "zerolinecolor": GRID},
    )
    return _with_runs(drawn, groups)


def _with_runs(drawn: Figure, groups: Sequence[Group]) -> Figure:
    """The figure with what it was made of: every run's step, bytes, memory and the load of its machine."""
    rows = (
        (group.name, o.case.name, o.predicted_s, o.actual_s, o.predicted_bytes, o.counted_bytes,
         o.predicted_memory_bytes, o.actual_memory_bytes, o.load)
        for group in groups for o in group.outcomes
    )  # fmt: skip
    columns = ("group", "run", "predicted_s", "actual_s", "predicted_bytes", "counted_bytes",
               "predicted_memory_bytes", "measured_memory_bytes", "load")  # fmt: skip
    return with_table(drawn, columns, rows)


def _calm_first(group: Group) -> Group:
    """The disturbed runs last: the legend shows the mark of the first."""
    return replace(group, outcomes=tuple(sorted(group.outcomes, key=lambda outcome: outcome.disturbed)))


def _dots(
    group: Group, number: int, x: Sequence[Any], y: Sequence[Any], selected: str | None, hover: str
) -> dict[str, Any]:
    symbols = [f"{shape_of(number)}{'-open' if outcome.disturbed else ''}" for outcome in group.outcomes]
    return _points(group.name, number, x, y, _names(group), hover, symbol=symbols, line=_outlines(group, selected))


def shape_of(number: int) -> str:
    """What tells a group's marks from those of an earlier one of the same colour."""
    return SHAPES[number // len(LINES) % len(SHAPES)]


def _points(
    name: str, number: int, x: Sequence[Any], y: Sequence[Any], words: Sequence[str], hover: str, **marker: Any
) -> dict[str, Any]:
    look = {"color": LINES[number % len(LINES)], "size": 8, "opacity": 0.85, "symbol": shape_of(number)}
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": list(x), "y": list(y), "customdata": list(words),
        "hovertemplate": f"%{{customdata}}: {hover}<extra></extra>", "marker": look | marker,
    }  # fmt: skip


def _names(group: Group) -> list[str]:
    return [outcome.case.name for outcome in group.outcomes]


def _outlines(group: Group, selected: str | None) -> dict[str, Any]:
    """A ring around the selected run."""
    return {"color": INK, "width": [2.5 if outcome.case.name == selected else 0 for outcome in group.outcomes]}


def _zone() -> dict[str, Any]:
    """The band of small errors behind everything."""
    return {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -100 * CLOSE, "y1": 100 * CLOSE,
            "fillcolor": _BAND, "line": {"width": 0}, "layer": "below"}  # fmt: skip
