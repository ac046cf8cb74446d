"""Resource usage over a step, as a monitoring page shows it: how busy every device and link is, moment by moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.cluster import Cluster
from simulator.network.transfers import paths, shared_part
from simulator.report.memory import usage as memory_usage
from simulator.report.time_spans import spread
from simulator.taskgraph import Floats, TaskGraph
from simulator.timeline import Timeline

MOST_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Means over equal intervals of the step, whose edges are edges_s, shape (intervals + 1,).

    compute: share of each interval that a device computes, shape (devices, intervals). memory_bytes: the most that it
    holds in each. link_bytes_per_s: shape (links, intervals); a transfer counts evenly over its whole span.
    """

    edges_s: Floats
    compute: Floats
    memory_bytes: Floats
    link_bytes_per_s: Floats


def usage_of(graph: TaskGraph, cluster: Cluster, timeline: Timeline, intervals: int = 200) -> Usage:
    """The Usage of a simulated step that takes time."""
    edges_s = np.linspace(0.0, timeline.step_s, intervals + 1)
    width_s = timeline.step_s / intervals
    devices = range(len(cluster.devices))
    spans = np.stack([timeline.start_s, timeline.end_s], axis=1)  # (tasks, 2)
    compute = [spread(spans[(graph.route < 0) & (graph.device == device)], edges_s) for device in devices]
    return Usage(
        edges_s=edges_s,
        compute=np.array(compute) / width_s,
        memory_bytes=np.array([_held(graph, cluster, timeline, d, edges_s) for d in devices]),
        link_bytes_per_s=carried_bytes(graph, cluster, timeline, edges_s) / width_s,
    )


def _held(graph: TaskGraph, cluster: Cluster, timeline: Timeline, device: int, edges_s: Floats) -> Floats:
    """The most memory in each interval."""
    times, level = memory_usage(graph, timeline, cluster, device)
    inside = np.clip(np.searchsorted(edges_s, times, side="right") - 1, 0, len(edges_s) - 2)
    carried_over = level[np.searchsorted(times, edges_s[:-1], side="right") - 1]
    np.maximum.at(carried_over, inside, level)
    return carried_over


def carried_bytes(graph: TaskGraph, cluster: Cluster, timeline: Timeline, edges_s: Floats) -> Floats:
    """Bytes over each link in each interval between edges_s, shape (links, intervals), spread evenly over transfers."""
    over = paths(graph.routes, cluster, graph.kept)
    return _over_links(graph, cluster, timeline, edges_s, graph.bytes, over.weight)


def taken_bytes(graph: TaskGraph, cluster: Cluster, timeline: Timeline, edges_s: Floats) -> Floats:
    """`link_work` by interval, as `carried_bytes`."""
    over = paths(graph.routes, cluster, graph.kept)
    return _over_links(graph, cluster, timeline, edges_s, graph.bytes * shared_part(graph, cluster, over), over.load)


def _over_links(
    graph: TaskGraph, cluster: Cluster, timeline: Timeline, edges_s: Floats, sent_bytes: Floats, times: Floats
) -> Floats:
    """What each task sends over its route, spread over its span; times: over each link of each route."""
    over = paths(graph.routes, cluster, graph.kept)
    spans = np.stack([timeline.start_s, timeline.end_s], axis=1)  # (tasks, 2)
    carried = np.zeros((len(cluster.links), len(edges_s) - 1))
    tasks = np.flatnonzero(graph.is_transfer)
    tasks = tasks[np.argsort(graph.route[tasks], kind="stable")]
    first = np.searchsorted(graph.route[tasks], np.arange(len(graph.routes) + 1))
    for number in range(len(graph.routes)):
        of_route, crossed = tasks[first[number] : first[number + 1]], slice(*over.start[number : number + 2])
        sent = spread(spans[of_route], edges_s, sent_bytes[of_route])
        carried[over.link[crossed]] += times[crossed, None] * sent
    return carried


def figure(usage: Usage, cluster: Cluster, title: str) -> dict[str, Any]:
    """A plain Plotly figure over the step: compute of workers and servers, their memory, and the busiest links."""
    names = [device.name for device in cluster.devices]
    lines = [*range(min(cluster.workers, MOST_LINES)), *cluster.servers[:MOST_LINES]]
    full = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
    busiest = np.argsort(-usage.link_bytes_per_s.sum(axis=1) / full, kind="stable")[:MOST_LINES]
    panels = (
        ("compute, %", [(names[d], usage.compute[d] * 100) for d in lines]),
        ("memory, GiB", [(names[d], usage.memory_bytes[d] / 2**30) for d in lines]),
        ("busiest links, GB/s", [(cluster.links[i].name, usage.link_bytes_per_s[i] / 1e9) for i in busiest]),
    )
    moments = ((usage.edges_s[:-1] + usage.edges_s[1:]) / 2).tolist()
    layout: dict[str, Any] = {"title": {"text": title}, "template": "plotly_white", "height": 900}
    layout["grid"] = {"rows": len(panels), "columns": 1, "pattern": "independent"}
    traces = []
    for panel, (label, series) in enumerate(panels):
        axis = str(panel + 1) if panel else ""
        layout[f"xaxis{axis}"] = {"title": {"text": "seconds"}}
        layout[f"yaxis{axis}"] = {"title": {"text": label}, "rangemode": "tozero"}
        axes = {"xaxis": f"x{axis}", "yaxis": f"y{axis}", "legendgroup": label, "legendgrouptitle": {"text": label}}
        for name, values in series:
            traces.append(
                {"type": "scatter", "mode": "lines", "name": name, "x": moments, "y": values.tolist(), **axes}
            )
    return {"data": traces, "layout": layout}
