"""Peak memory of each device against its capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.figures.style import CUT, IDLE, NAMES, OUTLINE, Figure, figure, with_table
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

MOST_LEVEL = 8
"""Bars whose names may be level; of more the names would not find room beside each other."""


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
