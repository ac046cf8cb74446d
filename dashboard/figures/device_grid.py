"""A language model on a grid of devices: who computes what, one block on one device, and memory by kind and stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboard.figures.style import BUSY, KINDS, NAMES, Figure, figure, message
from dashboard.state.device_groups import DeviceGrid
from dashboard.state.simulating import Counted
from simulator.cluster import Cluster
from simulator.run import Run
from simulator.taskgraph import Kind
from simulator.units import format_bytes, format_time

LEAST_NUMBERED = 14.0
"""Pixels of a cell of the grid from which it holds its device's number."""
_FORWARD = (Kind.FORWARD,)
_BACKWARD = (Kind.BACKWARD, Kind.WEIGHT, Kind.RECOMPUTE)


def device_grid(run: Run | Counted, cluster: Cluster, grid: DeviceGrid) -> Figure:
    """A cell per device: stages side by side, in each a row per replica and a column per tensor rank; shade: busy."""
    pipeline, data, tensor = grid.devices.shape
    columns = [stage * (tensor + 0.6) + rank for stage in range(pipeline) for rank in range(tensor)]
    rows = grid.devices.transpose(1, 0, 2).reshape(data, pipeline * tensor)  # (data, pipeline x tensor)
    used = run.report.devices
    busy = [[round(used[device].utilisation, 4) for device in row] for row in rows]
    hover = [[_device_words(run, cluster, grid, int(device)) for device in row] for row in rows]
    size = float(np.clip(min(110 / data, 200 / len(columns)), 4, 34))
    numbered = size >= LEAST_NUMBERED
    x = [column for column in columns for _ in range(data)]
    y = [replica for _ in columns for replica in range(data)]
    order = [(replica, column) for column in range(len(columns)) for replica in range(data)]
    marks: dict[str, Any] = {
        "type": "scatter", "mode": "markers+text" if numbered else "markers", "x": x, "y": y,
        "marker": {
            "symbol": "square", "size": size,
            "color": [busy[r][c] for r, c in order], **BUSY,
        },
        "text": [f"{rows[r][c]}" for r, c in order] if numbered else None,
        "textfont": {"size": 11, "color": ["#ffffff" if busy[r][c] > 0.5 else "#1a1a1a" for r, c in order]},
        "customdata": [[int(rows[r][c])] for r, c in order], "hovertext": [hover[r][c] for r, c in order],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }  # fmt: skip
    middles = [stage * (tensor + 0.6) + (tensor - 1) / 2 for stage in range(pipeline)]
    shown = range(0, pipeline, -(-pipeline // 8))
    ticks = {"tickvals": [middles[s] for s in shown], "ticktext": [f"stage {s + 1}" for s in shown]}
    return figure(
        [marks],
        xaxis={**ticks, "showgrid": False, "range": [-0.8, columns[-1] + 0.8]},
        yaxis={
            "title": "replica",
            "showgrid": False,
            "range": [data - 0.3, -0.7],
            "dtick": max(1, data // 8),
        },
    )


def _device_words(run: Run | Counted, cluster: Cluster, grid: DeviceGrid, device: int) -> str:
    stage, replica, rank = (int(index[0]) for index in np.nonzero(grid.devices == device))
    use = run.report.devices[device]
    return (
        f"{cluster.devices[device].name}: stage {stage + 1}, replica {replica}, tensor rank {rank}<br>"
        f"computes {use.utilisation:.0%} of the step, peak {format_bytes(use.peak_memory_bytes)}"
    )


def block_timeline(run: Run, device: int, block: range) -> Figure:
    """One block and micro-batch on one device: what it computes and what it sends or receives, forward and backward."""
    if not block:
        return message("the network repeats no block, or the stage holds no whole one")
    microbatch = run.plan.microbatches // 2
    data = []
    for title, kinds in (("forward", _FORWARD), ("backward", _BACKWARD)):
        data += _pass(run, device, block, microbatch, title, kinds)
    longest = max((max(s + w for s, w in zip(bar["base"], bar["x"], strict=True)) for bar in data), default=1.0)
    unit, size = ("ms", 1e3) if longest >= 5e3 else ("us", 1.0)
    for bar in data:
        bar |= {name: [value / size for value in bar[name]] for name in ("base", "x")}
    order = [f"{title}: {what}" for title in ("forward", "backward") for what in ("computes", "transfers")]
    return figure(
        data, barmode="overlay", bargap=0.25, uniformtext={"mode": "hide", "minsize": 9},
        xaxis={"title": f"{unit} of the pass", "range": [0, longest / size * 1.01]},
        yaxis={**NAMES, "categoryorder": "array", "categoryarray": order[::-1]},
    )  # fmt: skip


def _pass(
    run: Run, device: int, block: range, microbatch: int, title: str, kinds: tuple[Kind, ...]
) -> list[dict[str, Any]]:
    """Bars of one pass: of compute, and of the transfers of the block's layers that touch the device in its time."""
    graph, timeline = run.graph, run.timeline
    own = np.isin(graph.layer, list(block)) & np.isin(graph.microbatch, (microbatch, -1))
    computes = own & ~graph.is_transfer & (graph.device == device) & np.isin(graph.kind, kinds)
    if not computes.any():
        return []
    start_s, end_s = timeline.start_s[computes].min(), timeline.end_s[computes].max()
    touching = np.array([device in route.devices for route in graph.routes] + [False])[graph.route]  # (tasks,)
    within = (timeline.end_s > start_s) & (timeline.start_s < end_s)
    rows = (("computes", computes), ("transfers", own & graph.is_transfer & touching & within))
    return [_bars(run, np.nonzero(tasks)[0], f"{title}: {what}", start_s) for what, tasks in rows if tasks.any()]


def _bars(run: Run, tasks: Any, row: str, start_s: float) -> dict[str, Any]:
    graph, timeline = run.graph, run.timeline
    names = [graph.layer_names[graph.layer[task]] for task in tasks]
    seconds = timeline.end_s[tasks] - timeline.start_s[tasks]
    kinds = [Kind(graph.kind[task]) for task in tasks]
    return {
        "type": "bar", "orientation": "h", "name": row, "y": [row] * len(tasks),
        "base": ((timeline.start_s[tasks] - start_s) * 1e6).tolist(), "x": (seconds * 1e6).tolist(),
        "marker": {"color": [KINDS[kind] for kind in kinds], "line": {"width": 0.5, "color": "#ffffff"}},
        "text": [name.rpartition(".")[2] for name in names], "textposition": "inside", "insidetextanchor": "middle",
        "textangle": 0, "customdata": [f"{kind.name.lower()} of {name}: {format_time(float(each))}"
                                       for kind, name, each in zip(kinds, names, seconds, strict=True)],
        "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
