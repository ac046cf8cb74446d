"""A search's history: the plans it tried, and the other strategies, bytes against the step, twice.

A line joins the plans that no other beats in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from dashboard.figures.style import CUT, INK, OUTLINE, Figure, figure, log_axis, message, note, trade_off_line
from dashboard.state.candidates import Candidate
from dashboard.state.simulating import Glance
from dashboard.words.kpis import seconds_range
from dashboard.words.volume import volume_unit
from simulator.sweep.queries import pareto
from simulator.units import format_bytes, format_time

_UNEVEN = 1.10
_NEAR = 4.0
"""Plans whose step is that many times the shortest would squeeze all others into a corner."""


def candidates(tried: Sequence[Candidate], strategies: Mapping[str, Glance], shown: str) -> Figure:
    """Left all bytes, right those between nodes; hollow: max / mean above 1.10; grey: tried by the search.

    Plans tried that are far slower than the best are told of and not drawn. Plans that move nothing stand at the left
    edge of the logarithmic axis, as their hover says. Of a step that was counted alone it is not known where bytes go:
    its strategy is left out.
    """
    strategies = {name: plan for name, plan in strategies.items() if plan.between_bytes is not None}
    if not strategies:
        return message("no plans yet")
    data: list[dict[str, Any]] = []
    everything: list[Candidate | Glance] = [*tried, *strategies.values()]
    slowest_s = _NEAR * min(plan.step_s for plan in everything)
    slow = sum(plan.step_s > slowest_s for plan in tried)
    tried = [plan for plan in tried if plan.step_s <= slowest_s]
    left_out = f"<br>not drawn: {slow} tried with over {_NEAR:.0f} × the shortest step" if slow else ""
    key = f"line: best trade-offs · grey: tried<br>hollow: max / mean above {_UNEVEN:.2f}{left_out}"
    unit = volume_unit(strategies[shown].total_bytes if shown in strategies else 0.0)
    axes: list[dict[str, Any]] = []
    fronts: list[dict[str, Any]] = []
    names, seen = list(strategies), list(strategies.values())
    for number, size in enumerate(("total_bytes", "between_bytes")):
        amounts = [getattr(plan, size) / unit.size for plan in (*tried, *seen)]
        floor = min((amount for amount in amounts if amount > 0), default=1.0) / 2
        axes.append(_bytes_axis(amounts, floor))
        axis = {"xaxis": "x2", "yaxis": "y"} if number else {}
        heights = [max(amount, floor) for amount in amounts]
        if tried:
            hover = [_words(plan.label, getattr(plan, size), plan) for plan in tried]
            data.append(_dots(heights[: len(tried)], tried, hover, OUTLINE, 7) | axis)
        hover = [_words(name, getattr(plan, size), plan, plan.interval_s) for name, plan in strategies.items()]
        dots = _dots(heights[len(tried) :], seen, hover, [CUT if name == shown else INK for name in names], 11)
        texts = _free_labels(names, dots["x"], dots["y"], heights)
        named = {"text": texts, "textposition": _sides(seen, size), "textfont": {"size": 11}}
        data.append(dots | {"mode": "markers+text"} | named | axis)
        fronts.append(_front(floor, unit.size, size, [*tried, *(plan for plan in seen if plan.fits)]) | axis)
    moved, between = axes
    return figure(
        [*data, *fronts],
        xaxis={**moved, "title": f"{unit.name} moved", "domain": [0, 0.46]},
        xaxis2={**between, "title": f"{unit.name} between nodes", "domain": [0.54, 1], "anchor": "y"},
        yaxis=log_axis((y for dots in data for y in dots["y"]), lambda ms: format_time(ms / 1e3)),
        annotations=[note(key)],
        margin={"l": 52, "r": 28, "t": 52, "b": 40},
    )  # fmt: skip


def _bytes_axis(amounts: Sequence[float], floor: float) -> dict[str, Any]:
    """A logarithmic axis for amounts whose zeros stand at `floor`, which is then its first tick."""
    known = [amount for amount in amounts if amount > 0]
    axis = log_axis(known)
    if len(known) == len(amounts):
        return axis
    ticks = [
        (tick, text) for tick, text in zip(axis["tickvals"], axis["ticktext"], strict=True) if known and tick > floor
    ]
    return axis | {"tickvals": [floor, *(tick for tick, _ in ticks)], "ticktext": ["0", *(text for _, text in ticks)]}


def _dots(
    x: list[float], plans: Sequence[Candidate | Glance], hover: list[str], colour: Any, size: int
) -> dict[str, Any]:
    symbols = ["circle-open" if plan.load_balance_ratio > _UNEVEN else "circle" for plan in plans]
    return {
        "type": "scatter", "mode": "markers", "x": x, "y": [plan.step_s * 1e3 for plan in plans], "customdata": hover,
        "cliponaxis": False, "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"size": size, "color": colour, "symbol": symbols, "line": {"width": 1.5}},
    }  # fmt: skip


def _front(floor: float, unit_bytes: float, size: str, plans: Sequence[Candidate | Glance]) -> dict[str, Any]:
    """The plans that no other beats in bytes and step, joined."""
    points = [{"x": max(getattr(plan, size) / unit_bytes, floor), "y": plan.step_s * 1e3} for plan in plans]
    best = pareto(points, "x", "y")
    return trade_off_line([point["x"] for point in best], [point["y"] for point in best])


def _free_labels(names: Sequence[str], x: Sequence[float], y: Sequence[float], drawn: Sequence[float]) -> list[str]:
    """Names whose place no earlier name has taken, the others empty: pointing at their dots says them.

    drawn: where anything stands along x.
    """
    spans = [log(max(values) / min(values)) or 1.0 if values else 1.0 for values in (drawn, y)]
    labels: list[str] = []
    for i, name in enumerate(names):
        near = (
            abs(log(x[i] / x[j])) < 0.5 * spans[0] and abs(log(y[i] / y[j])) < 0.08 * spans[1]
            for j in range(i) if labels[j]
        )  # fmt: skip
        labels.append("" if any(near) else name)
    return labels


def _sides(seen: Sequence[Glance], size: str) -> list[str]:
    """Names of plans at the right stand to the left of their dots."""
    amounts = [getattr(plan, size) for plan in seen]
    middle = (max(amounts) * max(min(amounts), 1.0)) ** 0.5
    return ["middle left" if amount > middle else "middle right" for amount in amounts]


def _words(name: str, size: float, plan: Candidate | Glance, ends_s: tuple[float, float] | None = None) -> str:
    ends = f" ({seconds_range(ends_s)})" if ends_s else ""
    return f"{name}: {format_bytes(size)}, {format_time(plan.step_s)}{ends}, max / mean {plan.load_balance_ratio:.2f}"
