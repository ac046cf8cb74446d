"""What devices do: their compute over the mean, and each layer's; peak memory by kind; where the step's time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dashboard.figures.style import (
    CUT,
    FORWARD,
    IDLE,
    INK,
    LEGEND,
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
from dashboard.state.device_groups import DeviceGroup, device_groups, slowest
from dashboard.state.flows import layer_seconds
from dashboard.state.measures import BUBBLE, COMPUTE, EXPOSED, LAUNCHES, OVERLAPPED, Share
from dashboard.state.measures import IDLE as NO_WORK
from dashboard.state.measures import NAMES as USES
from dashboard.state.simulating import Counted
from simulator.cluster import Cluster
from simulator.report.resource_use import DeviceUse
from simulator.run import Run

KINDS: Mapping[str, str] = {
    "parameters": "#332288", "gradients": "#44AA99", "optimizer state": "#AA4499", "activations": "#88CCEE",
    "other": IDLE,
}  # fmt: skip
"""What memory holds at the peak, and its colour: of Tol's muted scheme, as the colours of tasks mean something else."""

MOST_LEVEL = 8
"""Bars whose names may be level; of more the names would not find room beside each other."""
COLOURS = {
    COMPUTE: FORWARD,
    OVERLAPPED: "#3f97cf",
    **dict.fromkeys(EXPOSED.values(), "#b9a3c9"),
    EXPOSED["forward"]: "#c9b458",
    EXPOSED["backward"]: "#b5838d",
    EXPOSED["synchronisation"]: "#8fbfa8",
    LAUNCHES: "#c2b8a3",
    BUBBLE: "#d9dce1",
    NO_WORK: IDLE,
}
"""Whatever is waited for is hatched, in a hue that no kind of task has."""
_PLAIN = {COMPUTE, OVERLAPPED}
_LABELLED = 0.09  # share of the width that leaves room for a number


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


def parts_of(device: DeviceUse) -> dict[str, float]:
    """Bytes by KINDS at the peak of a device: what stays, and what comes on top of it."""
    stays = (device.parameter_bytes, device.gradient_bytes, device.optimizer_bytes)
    on_top = device.peak_memory_bytes - device.static_bytes
    return dict(zip(KINDS, (*stays, on_top, device.static_bytes - sum(stays)), strict=True))


def memory(
    run: Run | Counted, cluster: Cluster, baseline: Run | None = None, opened: int | None = None,
    groups: Sequence[DeviceGroup] = (),
) -> Figure:  # fmt: skip
    """Stacked by kind, at the peak; red over capacity.

    Of many devices a bar per group, its fullest; opened: the group whose devices are drawn. groups: those instead.
    """
    groups = groups or device_groups(cluster, opened)
    fullest = [max(group.devices, key=lambda d: run.report.devices[d].peak_memory_bytes) for group in groups]
    names, devices = [group.name for group in groups], [run.report.devices[device] for device in fullest]
    largest = max(max(device.peak_memory_bytes, device.memory_bytes or 0) for device in devices)
    scale, unit = (2**30, "GiB") if largest >= 2**30 else (2**20, "MiB")
    parts = [parts_of(device) for device in devices]
    over = [d.memory_bytes is not None and d.peak_memory_bytes > d.memory_bytes for d in devices]
    edge = {"color": CUT, "width": [3 if out else 0 for out in over]}
    data = [
        {"type": "bar", "marker": {"color": colour, "line": edge},
         **_named(names, [part[kind] / scale for part in parts], kind)}
        for kind, colour in KINDS.items() if any(part[kind] > 0 for part in parts)
    ]  # fmt: skip
    if baseline is not None and len(baseline.report.devices) == len(run.report.devices):
        peaks = [device.peak_memory_bytes / scale for device in baseline.report.devices]
        before = [max(peaks[device] for device in group.devices) for group in groups]
        data.append(_marks(names, before, "baseline", OUTLINE))
    limits = [device.memory_bytes / scale if device.memory_bytes else None for device in devices]
    if any(limit is not None for limit in limits):
        data.append(_marks(names, limits, "capacity", CUT))
    drawn = figure(
        data, barmode="stack", bargap=0.35, legend={"traceorder": "reversed", "font": {"size": 11}},
        xaxis={**NAMES, "dtick": 1, "tickfont": {"size": 10}, **({"tickangle": 45} if len(names) > MOST_LEVEL else {})},
        yaxis={"ticksuffix": f" {unit}", "rangemode": "tozero"},
    )  # fmt: skip
    rows = ([device.name, *map(round, parts_of(device).values()), device.memory_bytes] for device in run.report.devices)
    columns = ("device", *(f"{kind.replace(' ', '_')}_bytes" for kind in KINDS), "capacity_bytes")
    return with_table(drawn, columns, rows)


def _marks(names: list[str], values: Sequence[float | None], name: str, colour: str) -> dict[str, Any]:
    marker = {"symbol": "line-ew", "size": 8, "line": {"width": 3, "color": colour}, "color": colour}
    return {"type": "scatter", "mode": "markers", "marker": marker, **_named(names, values, name)}


def _named(names: list[str], values: Sequence[float | None], name: str) -> dict[str, Any]:
    return {"name": name, "x": names, "y": values, "hovertemplate": f"%{{x}}: {name} %{{y}}<extra></extra>"}


def breakdown(rows: list[tuple[str, tuple[Share, ...]]]) -> Figure:
    """A stacked bar per row (a name and its shares, e.g. baseline and candidate or one per device), first on top."""
    names = [name for name, _ in rows]
    data = []
    for i, part in enumerate(USES):
        ratios, seconds = [shares[i].ratio for _, shares in rows], [shares[i].seconds for _, shares in rows]
        if max(ratios, default=0.0) < 0.0005:
            continue
        data.append({
            "type": "bar",
            "orientation": "h",
            "name": part,
            "y": names,
            "x": ratios,
            "customdata": [s * 1e3 for s in seconds],
            "text": [f"{r:.0%}" if r >= _LABELLED else "" for r in ratios],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "marker": _marker(part),
            "hovertemplate": f"%{{y}}: {part} %{{x:.1%}}, %{{customdata:,.4~r}} ms of device time<extra></extra>",
        })  # fmt: skip
    drawn = figure(
        data,
        barmode="stack",
        bargap=0.35,
        legend={**LEGEND, "entrywidth": 0.5, "entrywidthmode": "fraction"},
        xaxis={"tickformat": ".0%", "range": [0, 1], "dtick": 0.25, "showgrid": False},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
    )
    cells = ((name, share.name, share.seconds, share.ratio) for name, shares in rows for share in shares)
    return with_table(drawn, ("of", "spent_on", "device_seconds", "ratio"), cells)


def _marker(part: str) -> dict[str, object]:
    marker: dict[str, object] = {"color": COLOURS[part]}
    if part not in _PLAIN:
        marker["pattern"] = {"shape": "/", "fgcolor": "#8b929c", "bgcolor": COLOURS[part], "size": 6, "solidity": 0.25}
    return marker
