"""Peak memory of each device against its capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard.figures.style import CUT, IDLE, LEGEND, OUTLINE, Figure, figure, with_table
from dashboard.state.device_groups import DeviceGroup, device_groups
from dashboard.state.simulating import Counted
from simulator.cluster import Cluster
from simulator.report.resource_use import DeviceUse
from simulator.run import Run

KINDS: Mapping[str, str] = {
    "parameters": "#332288", "gradients": "#44AA99", "optimizer state": "#AA4499", "activations": "#88CCEE",
    "other": IDLE,
}  # fmt: skip
"""What memory holds at the peak, and its colour: of Tol's muted scheme, as the colours of tasks mean something else."""

MOST_LYING = 8


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

    Of many devices a bar per group, its fullest; opened: the group whose devices are drawn. groups: those instead. More
    bars than MOST_LYING stand upright, where there is room for all their names.
    """
    groups = groups or device_groups(cluster, opened)
    upright = len(groups) > MOST_LYING
    fullest = [max(group.devices, key=lambda d: run.report.devices[d].peak_memory_bytes) for group in groups]
    names, devices = [group.name for group in groups], [run.report.devices[device] for device in fullest]
    largest = max(max(device.peak_memory_bytes, device.memory_bytes or 0) for device in devices)
    scale, unit = (2**30, "GiB") if largest >= 2**30 else (2**20, "MiB")
    parts = [parts_of(device) for device in devices]
    over = [d.memory_bytes is not None and d.peak_memory_bytes > d.memory_bytes for d in devices]
    edge: dict[str, object] = {"color": CUT, "width": [3 if out else 0 for out in over]}
    data: list[dict[str, object]] = [
        _bars(names, [part[kind] / scale for part in parts], kind, colour, edge, upright)
        for kind, colour in KINDS.items() if any(part[kind] > 0 for part in parts)
    ]  # fmt: skip
    if baseline is not None and len(baseline.report.devices) == len(run.report.devices):
        peaks = [device.peak_memory_bytes / scale for device in baseline.report.devices]
        before = [max(peaks[device] for device in group.devices) for group in groups]
        data.append(_marks(names, before, "baseline", OUTLINE, upright))
    limits = [device.memory_bytes / scale if device.memory_bytes else None for device in devices]
    if any(limit is not None for limit in limits):
        data.append(_marks(names, limits, "capacity", CUT, upright))
    sizes = {"ticksuffix": f" {unit}", "rangemode": "tozero"}
    named = {"type": "category", "showgrid": False}
    standing = {
        "xaxis": {**named, "tickangle": 45, "dtick": 1, "tickfont": {"size": 10}, "automargin": True}, "yaxis": sizes,
    }  # fmt: skip
    above = {**LEGEND, "y": 1.02, "yanchor": "bottom"}
    lying = {"xaxis": sizes, "yaxis": {**named, "autorange": "reversed"}}
    drawn = figure(
        data, barmode="stack", bargap=0.35, showlegend=True, legend=above, **(standing if upright else lying)
    )
    rows = ([device.name, *map(round, parts_of(device).values()), device.memory_bytes] for device in run.report.devices)
    columns = ("device", *(f"{kind.replace(' ', '_')}_bytes" for kind in KINDS), "capacity_bytes")
    return with_table(drawn, columns, rows)


def _bars(
    names: list[str], values: list[float], name: str, colour: str, edge: dict[str, object], upright: bool
) -> dict[str, object]:
    marker = {"color": colour, "line": edge}
    orientation = "v" if upright else "h"
    return {"type": "bar", "orientation": orientation, "marker": marker, **_placed(names, values, name, upright)}


def _marks(
    names: list[str], values: list[float | None] | list[float], name: str, colour: str, upright: bool
) -> dict[str, object]:
    symbol, size = ("line-ew", 8) if upright else ("line-ns", 18)
    marker = {"symbol": symbol, "size": size, "line": {"width": 3, "color": colour}, "color": colour}
    return {"type": "scatter", "mode": "markers", "marker": marker, **_placed(names, values, name, upright)}


def _placed(names: list[str], values: Sequence[float | None], name: str, upright: bool) -> dict[str, object]:
    """Groups along one axis, sizes along the other."""
    group, size = ("x", "y") if upright else ("y", "x")
    return {
        "name": name,
        group: names,
        size: values,
        "hovertemplate": f"%{{{group}}}: {name} %{{{size}}}<extra></extra>",
    }
