"""Load balance: each device's compute over the mean, and each layer's."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboard.figures.style import (
    INK,
    MAGNITUDE,
    NAMES,
    OUTLINE,
    Figure,
    colour_bar,
    device_colours,
    faded,
    figure,
    with_table,
)
from dashboard.state.device_groups import device_groups, slowest
from dashboard.state.flows import layer_seconds
from simulator.cluster import Cluster
from simulator.run import Run


def load_balance(
    run: Run, cluster: Cluster, baseline: Run | None = None, selected: int | None = None, opened: int | None = None
) -> Figure:
    """A bar per worker, its compute seconds over the mean; the baseline's outlined where it has as many workers.

    Of many workers a bar per group, its slowest; opened: the group whose workers are drawn.
    """
    groups = device_groups(cluster, opened, servers=False)
    shown = slowest(groups, run.report)
    everybody = ratios_of(run, cluster.workers)
    ratios = [everybody[device] for device in shown]
    shades = device_colours(cluster)
    names, colours = [group.name for group in groups], [shades[device] for device in shown]
    seconds = [run.report.devices[device].compute_s * 1e3 for device in shown]
    fullest = [f", slowest of {group.whole}" if len(group.devices) > 1 else "" for group in groups]
    bars: dict[str, Any] = {
        "type": "bar",
        "x": names,
        "y": ratios,
        "marker": {"color": colours, "opacity": faded(colours, shown.index(selected) if selected in shown else None)},
        "customdata": [
            [device, ms, more, number]
            for number, (device, ms, more) in enumerate(zip(shown, seconds, fullest, strict=True))
        ],
        "hovertemplate": "%{x}: %{y:.3f} of the mean, %{customdata[1]:,.4~r} ms%{customdata[2]}<extra></extra>",
    }
    data = [bars]
    if baseline is not None and len(baseline.report.devices) >= cluster.workers:
        of_baseline = ratios_of(baseline, cluster.workers)
        before = [max(of_baseline[device] for device in group.devices) for group in groups]
        outline = {"color": "rgba(0,0,0,0)", "line": {"color": OUTLINE, "width": 1.5}}
        data.append({
            "type": "bar", "x": names, "y": before, "marker": outline, "width": 0.92,
            "hovertemplate": "baseline %{x}: %{y:.3f} of the mean<extra></extra>",
        })  # fmt: skip
    line = {"color": INK, "dash": "dot", "width": 1}
    mean = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}
    drawn = figure(
        data,
        barmode="overlay",
        bargap=0.3,
        shapes=[mean],
        xaxis=NAMES,
        yaxis={"title": "compute / mean", "rangemode": "tozero"},
    )
    rows = ((cluster.devices[d].name, run.report.devices[d].compute_s, everybody[d]) for d in range(cluster.workers))
    return with_table(drawn, ("device", "compute_s", "over_mean"), rows)


def layer_balance(run: Run, cluster: Cluster, selected: int | None = None) -> Figure:
    """A bar per layer: the most loaded worker's seconds in it over the mean of all workers, coloured by its time.

    1 is evenly spread, the number of workers is all on one. Layers without compute are left out.
    """
    loads = layer_seconds(run, cluster)
    total = loads.sum(axis=1)
    shown = np.flatnonzero(total > 0)
    ratio = loads[shown].max(axis=1) / loads[shown].mean(axis=1)
    names = [run.graph.layer_names[i] for i in shown]
    positions = shown.tolist()
    at = positions.index(selected) if selected in positions else None
    bars = {
        "type": "bar",
        "x": list(range(len(shown))),
        "y": ratio.tolist(),
        "marker": {
            "color": (total[shown] * 1e3).tolist(), "colorscale": MAGNITUDE, "reversescale": True,
            "opacity": faded([""] * len(shown), at), "colorbar": colour_bar("ms"),
        },
        "customdata": [[int(i), name, float(total[i] * 1e3)] for i, name in zip(shown, names, strict=True)],
        "hovertemplate": "%{customdata[1]}: %{y:.2f} of the mean, %{customdata[2]:,.4~r} ms in all<extra></extra>",
    }  # fmt: skip
    drawn = figure(
        [bars],
        bargap=0.15,
        xaxis={"title": "layer, in topological order", "showgrid": False},
        yaxis={"title": "most loaded / mean", "rangemode": "tozero"},
    )
    computing = (loads[shown] > 0).sum(axis=1)
    rows = zip(names, computing.tolist(), total[shown].tolist(), ratio.tolist(), strict=True)
    return with_table(drawn, ("layer", "devices", "compute_s", "most_loaded_over_mean"), rows)


def ratios_of(run: Run, workers: int) -> list[float]:
    """Each worker's compute seconds over the mean of all; 1 where nothing is computed."""
    seconds = np.array([device.compute_s for device in run.report.devices[:workers]])
    ratios: list[float] = (seconds / seconds.mean() if seconds.any() else np.ones(workers)).tolist()
    return ratios
