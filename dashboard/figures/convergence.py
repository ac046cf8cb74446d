"""Accuracy over simulated seconds of training, one line per strategy, and where each reaches the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboard.figures.style import LINES, OUTLINE, Figure, figure, message, with_table
from dashboard.state.convergence import AccuracyCurve
from simulator.units import format_duration

_DASHES = ("solid", "dash", "dot")


def accuracy_over_time(curves: Sequence[AccuracyCurve], target: float | None) -> Figure:
    """Medians over the trials, with the range of the first strategy's; a star where the target is reached."""
    if not curves:
        return message("nothing that was measured tells how this batch size learns")
    data = [_range(curves[0]), *(_line(i, curve) for i, curve in enumerate(curves))]
    data += [_star(i, curve) for i, curve in enumerate(curves) if curve.reached is not None]
    shapes = [] if target is None else [_level(target)]
    drawn = figure(
        data,
        shapes=shapes,
        showlegend=True,
        legend={"orientation": "v", "x": 1.02, "y": 1, "yanchor": "top", "font": {"size": 11}},
        margin={"l": 56, "r": 12, "t": 12, "b": 42},
        xaxis={"title": {"text": "simulated seconds of training"}, "type": "log"},
        yaxis={"title": {"text": "accuracy on unseen samples"}, "tickformat": ".0%"},
    )
    rows = (
        (curve.strategy, accuracy, *seconds)
        for curve in curves
        for accuracy, *seconds in zip(curve.accuracy, curve.low_s, curve.median_s, curve.high_s, strict=True)
    )
    return with_table(drawn, ("strategy", "accuracy", "low_s", "median_s", "high_s"), rows)


def _line(number: int, curve: AccuracyCurve) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": curve.strategy, "x": list(curve.median_s),
        "y": list(curve.accuracy), "hovertemplate": f"{curve.strategy}: %{{y:.1%}} after %{{x:,.4~r}} s<extra></extra>",
        "line": {"color": LINES[number % 8], "width": 2, "dash": _DASHES[number // 8 % 3]},
    }  # fmt: skip


def _range(curve: AccuracyCurve) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": f"{LINES[0]}22", "line": {"width": 0},
        "x": [*curve.low_s, *curve.high_s[::-1]], "y": [*curve.accuracy, *curve.accuracy[::-1]],
        "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def _star(number: int, curve: AccuracyCurve) -> dict[str, Any]:
    assert curve.reached is not None
    hover = f"{curve.strategy} reaches {curve.reached.target:.0%} after {format_duration(curve.reached.seconds.median)}"
    return {
        "type": "scatter", "mode": "markers", "showlegend": False, "x": [curve.reached.seconds.median],
        "y": [curve.reached.target], "hovertemplate": f"{hover}<extra></extra>",
        "marker": {"symbol": "star", "size": 13, "color": LINES[number % 8], "line": {"color": OUTLINE, "width": 1}},
    }  # fmt: skip


def _level(target: float) -> dict[str, Any]:
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": target, "y1": target,
            "line": {"color": OUTLINE, "dash": "dot", "width": 1}}  # fmt: skip
