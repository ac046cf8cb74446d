"""What all figures share: the palette, the frame, names and colours of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

from dashboard.figures.shades import shades_of
from simulator.cluster import Cluster
from simulator.taskgraph import Kind

Figure = dict[str, Any]

FORWARD, BACKWARD, MESSAGE, REDUCE = "#0072B2", "#E69F00", "#56B4E9", "#009E73"
UPDATE, CUT, IDLE, WEIGHT = "#CC79A7", "#D55E00", "#9AA0A6", "#F0E442"
_NAMED = {
    "FORWARD": FORWARD,
    "BACKWARD": BACKWARD,
    "WEIGHT": WEIGHT,
    "UPDATE": UPDATE,
    "SYNCHRONISATION": REDUCE,
    "PARAMETERS": "#117755",
    "RECOMPUTE": "#5e9fd0",
}
KINDS = {kind: _NAMED.get(kind.name, MESSAGE) for kind in Kind}
"""The colour of every kind of task; messages share theirs."""
LINES = ("#664499", "#bbaa33", "#aa1155", "#006677", "#dd9988", "#dd88ee", "#006600", "#0099ff")
"""For lines and groups side by side, strategies, policies and sets of runs: none is near the colour of a kind of task,
a cut or a link, and without red and green cones they can still be told apart."""
TIER_COLOURS = ("#aab2c0", "#6b7690", "#8f7aa8", "#a58f5e")
"""For links of a tier: none is the colour of a kind of task, of a device or of a cut."""
GRID = "rgba(128,128,128,0.22)"
INK = "#3b4252"
OUTLINE = "#7b8494"
MAGNITUDE = "Cividis"
FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
"""Of the page around the figures."""
LEGEND: dict[str, Any] = {
    "orientation": "h", "y": -0.18, "x": 0, "yanchor": "top", "traceorder": "normal", "entrywidth": 105,
    "font": {"size": 11},
}  # fmt: skip
"""Below the figure, where it has one."""
LEGEND_ABOVE: dict[str, Any] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11}}
NAMES: dict[str, Any] = {"type": "category", "showgrid": False}
"""An axis of names."""
NAMES_DOWN: dict[str, Any] = {**NAMES, "autorange": "reversed"}
"""One that begins at the top."""

CONFIG: dict[str, Any] = {"showSendToCloud": False, "displaylogo": False, "displayModeBar": False, "responsive": True}
"""For every graph: plotly.js would otherwise offer to send figures to a cloud service."""


def figure(data: list[dict[str, Any]], **layout: Any) -> Figure:
    """A figure in the project's frame; axes given are completed (their title is text), all else is laid over it."""
    # Hiding labels that would hang over takes a quarter of the drawing: every label is measured, each a new layout.
    axis = {"gridcolor": GRID, "zeroline": False, "automargin": True, "ticks": "", "ticklabeloverflow": "allow"}
    framed: dict[str, Any] = {
        "margin": {"l": 48, "r": 12, "t": 10, "b": 38},
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": "legend" in layout,
        "hovermode": "closest",
        "legend": LEGEND,
        "hoverlabel": {"align": "left"},
        "uirevision": "kept",
        "xaxis": axis,
        "yaxis": axis,
    }
    for name in [name for name in layout if "axis" in name]:
        title = layout[name].get("title")
        layout[name] = {**axis, **layout[name], **({"title": {"text": title}} if title else {})}
    return {"data": data, "layout": {**framed, **layout}}


def colour_bar(title: str, **more: Any) -> dict[str, Any]:
    """What the shades of MAGNITUDE stand for."""
    return {"title": {"text": title, "side": "right"}, "thickness": 10, "outlinewidth": 0, **more}


BUSY: dict[str, Any] = {
    "colorscale": MAGNITUDE, "reversescale": True, "cmin": 0, "cmax": 1,
    "colorbar": colour_bar("busy", tickformat=".0%"),
}  # fmt: skip
"""Shades of shares of the step."""


def heatmap(x: Sequence[Any], y: Sequence[Any], z: Any, bar: Mapping[str, Any], hover: str, **more: Any) -> Any:
    """Cells z[row][column] in shades of MAGNITUDE, blank where there is none."""
    return {
        "type": "heatmap", "x": x, "y": y, "z": z, "colorscale": MAGNITUDE, "reversescale": True, "hoverongaps": False,
        "colorbar": bar, "hovertemplate": f"{hover}<extra></extra>", **more,
    }  # fmt: skip


def log_axis(values: Iterable[float], words: Callable[[float], str] = "{:,.10g}".format) -> dict[str, Any]:
    """A logarithmic axis for positive values, with ticks at 1, 2 and 5 times powers of ten, or at the powers alone."""
    known = [value for value in values if value > 0]
    low, high = min(known, default=1.0), max(known, default=1.0)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    steps = (1, 2, 5) if log10(high / low) < 2 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps if low / 1.6 <= step * 10.0**power <= high * 1.6]
    return {"type": "log", "tickvals": ticks, "ticktext": [words(tick) for tick in ticks]}


def with_table(drawn: Figure, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Figure:
    """The figure with the data behind it, which its card saves as CSV instead of coordinates."""
    table = {"columns": list(columns), "rows": [list(row) for row in rows]}
    return {**drawn, "layout": {**drawn["layout"], "meta": {"table": table}}}


def message(text: str) -> Figure:
    """An empty figure that says why it is empty."""
    return figure(
        [],
        xaxis={"visible": False},
        yaxis={"visible": False},
        annotations=[note(text, x=0.5, y=0.5, font={"size": 13})],
    )


def note(text: str, **more: Any) -> dict[str, Any]:
    """Small print above the upper right corner of a figure, unless `more` says where."""
    above = {} if "y" in more else {"yanchor": "bottom"}
    return {
        "text": text, "showarrow": False, "xref": "paper", "yref": "paper", "x": 1, "y": 1, "align": "right",
        "font": {"size": 11}, **above, **more,
    }  # fmt: skip


def trade_off_line(x: Sequence[float], y: Sequence[float]) -> dict[str, Any]:
    """The best trade-offs of two quantities, joined."""
    return {
        "type": "scatter", "mode": "lines", "name": "best trade-offs", "hoverinfo": "skip", "x": list(x), "y": list(y),
        "line": {"color": OUTLINE, "width": 1.5, "shape": "hv"},
    }  # fmt: skip


def device_colours(cluster: Cluster) -> list[str]:
    """One colour per device: the node is the hue (or Cividis by node), the device its lightness; servers are grey."""
    return [*shades_of(cluster).colours, *[IDLE] * (len(cluster.devices) - cluster.workers)]


def faded(colours: list[str], kept: int | None) -> list[float]:
    """Opacities that leave only number `kept` at full strength; all of them where nothing is selected."""
    return [1.0 if kept is None or i == kept else 0.3 for i in range(len(colours))]
