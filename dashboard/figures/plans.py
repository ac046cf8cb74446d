"""Ranked plans: the steps of the best, each between the ends of its 90 % range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.figures.style import FORWARD, IDLE, OUTLINE, Figure, figure, message, with_table
from dashboard.words.sweep import QUANTITIES, expected

MOST_BARS = 12


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
