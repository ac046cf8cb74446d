"""The pictures of a scaling study: a plain Plotly figure of four panels, and a chart of the throughput alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.studies.scaling import ScalingResult
from simulator.sweep.chart import Chart, Series

PANELS = (
    ("samples_per_s", "samples/s", 1.0, "log"),
    ("efficiency", "efficiency, %", 100.0, "linear"),
    ("communication_share", "step not computing, %", 100.0, "linear"),
    ("dollars_per_epoch", "dollars per epoch", 1.0, "log"),
)
"""(field of ScalingResult, title, factor, kind of axis), left to right and top to bottom."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")  # Okabe and Ito


def figure(points: Sequence[ScalingResult], title: str) -> dict[str, Any]:
    """Four panels over the number of devices, a line per architecture; throughput also beside perfect scaling.

    What is None (no prices, no epoch) leaves a gap. Hovering a point tells what limits it.
    """
    names = list(dict.fromkeys(point.architecture for point in points))
    traces = [
        _trace([point for point in points if point.architecture == name], number, panel)
        for panel in range(len(PANELS))
        for number, name in enumerate(names)
    ]
    layout: dict[str, Any] = {
        "title": {"text": title},
        "template": "plotly_white",
        "grid": {"rows": 2, "columns": 2, "pattern": "independent"},
        "height": 800,
    }
    counts = sorted({point.devices for point in points})
    for panel, (_, label, _, kind) in enumerate(PANELS):
        suffix = str(panel + 1) if panel else ""
        ticks = {"tickvals": counts, "ticktext": list(map(str, counts))}
        layout[f"xaxis{suffix}"] = {"type": "log", "title": {"text": "devices"}, **ticks}
        layout[f"yaxis{suffix}"] = {"type": kind, "title": {"text": label}, "rangemode": "tozero"}
    return {"data": [_perfect(points), *traces], "layout": layout}


def throughput(points: Sequence[ScalingResult], title: str) -> Chart:
    """Samples per second over the number of devices, a line per architecture, and perfect scaling."""
    perfect = _perfect(points)
    lines = {
        name: [(point.devices, point.samples_per_s) for point in points if point.architecture == name]
        for name in dict.fromkeys(point.architecture for point in points)
    }
    lines["perfect"] = list(zip(perfect["x"], perfect["y"], strict=True))
    series = tuple(
        Series(name=name, x=tuple(x for x, _ in line), y=tuple(y for _, y in line)) for name, line in lines.items()
    )
    return Chart(title=title, x="devices", y="samples/s", series=series)


def _trace(points: Sequence[ScalingResult], number: int, panel: int) -> dict[str, Any]:
    field, _, factor, _ = PANELS[panel]
    values = [getattr(point, field) for point in points]
    axis = str(panel + 1) if panel else ""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": points[0].architecture,
        "legendgroup": points[0].architecture,
        "showlegend": panel == 0,
        "line": {"color": COLOURS[number % len(COLOURS)]},
        "x": [point.devices for point in points],
        "y": [None if value is None else value * factor for value in values],
        "text": [str(point.bottleneck or "one device") for point in points],
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
    }


def _perfect(points: Sequence[ScalingResult]) -> dict[str, Any]:
    """Throughput of one device times the number of devices."""
    counts = sorted({point.devices for point in points})
    one_device_samples_per_s = next((point.samples_per_s / point.speedup for point in points), 0.0)
    line = {"color": "#999999", "dash": "dot"}
    throughput = [one_device_samples_per_s * count for count in counts]
    return {"type": "scatter", "mode": "lines", "name": "perfect", "line": line, "x": counts, "y": throughput}
