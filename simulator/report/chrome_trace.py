"""A timeline as Chrome trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Process "devices" has a row per device with its compute tasks; process "links" has a row per link with the
transfers that cross it. Transfers that share a link at the same moment cannot overlap in one row of that format,
so a link gets further rows, "(2)", "(3)", where it carries several at once.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np

from simulator.cluster import Cluster
from simulator.taskgraph import Kind, TaskGraph
from simulator.timeline import Timeline

DEVICES, LINKS = 1, 2  # process numbers
FIRST_ROW = 3  # a row with its process's number would be taken for the main thread, and row 0 for the idle one
Event = dict[str, Any]


def trace(graph: TaskGraph, cluster: Cluster, timeline: Timeline) -> dict[str, Any]:
    """The trace-event object (JSON object format): complete events "X" and metadata events "M", times in microseconds.

    Times are rounded to whole nanoseconds, starts and ends alike, so that rounding makes no overlap.
    """
    start, end = (np.round(column * 1e6, 3) for column in (timeline.start_s, timeline.end_s))
    spans = list(zip(start.tolist(), end.tolist(), strict=True))
    events = _named(DEVICES, "devices", [device.name for device in cluster.devices])
    for task in np.flatnonzero(~graph.is_transfer).tolist():
        events.append(_event(graph, task, spans[task], DEVICES, FIRST_ROW + int(graph.device[task])))
    return {"displayTimeUnit": "ms", "traceEvents": events + _link_events(graph, cluster, spans)}


def _link_events(graph: TaskGraph, cluster: Cluster, spans: list[tuple[float, float]]) -> list[Event]:
    """A row per link, and as many more below it as transfers overlap there."""
    names: list[str] = []
    events: list[Event] = []
    for link, tasks in zip(cluster.links, _crossings(graph, cluster), strict=True):
        tasks.sort(key=lambda task: (*spans[task], task))
        lanes = _lanes([spans[task] for task in tasks])
        for task, lane in zip(tasks, lanes, strict=True):
            events.append(_event(graph, task, spans[task], LINKS, FIRST_ROW + len(names) + lane))
        names += [link.name if lane == 0 else f"{link.name} ({lane + 1})" for lane in range(max(lanes, default=0) + 1)]
    return _named(LINKS, "links", names) + events


def _crossings(graph: TaskGraph, cluster: Cluster) -> list[list[int]]:
    """For each link the transfers that cross it."""
    links_of = [
        sorted({link for source, target in route.pairs for link in cluster.route(source, target)})
        for route in graph.routes
    ]
    crossing: list[list[int]] = [[] for _ in cluster.links]
    for task in np.flatnonzero(graph.is_transfer).tolist():
        for link in links_of[graph.route[task]]:
            crossing[link].append(task)
    return crossing


def _lanes(spans: list[tuple[float, float]]) -> list[int]:
    """The lane of each span (sorted by start), such that spans of one lane never overlap; as few lanes as possible."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []  # (end, lane)
    lanes = []
    for start, end in spans:
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes


def _event(graph: TaskGraph, task: int, span: tuple[float, float], process: int, row: int) -> Event:
    kind, layer = Kind(graph.kind[task]).name.lower(), int(graph.layer[task])
    arguments: Event = {"task": task, "what": graph.describe(task)}
    if process == LINKS:
        arguments["bytes"] = float(graph.bytes[task])
    return {
        "name": f"{kind} {graph.layer_names[layer]}" if layer >= 0 else kind,
        "cat": kind,
        "ph": "X",
        "ts": span[0],
        "dur": round(span[1] - span[0], 3),
        "pid": process,
        "tid": row,
        "args": arguments,
    }


def _named(process: int, title: str, rows: list[str]) -> list[Event]:
    """Metadata that name a process and its rows and keep them in order."""
    events: list[Event] = [_metadata(process, 0, "process_name", {"name": title})]
    for row, name in enumerate(rows, start=FIRST_ROW):
        events.append(_metadata(process, row, "thread_name", {"name": name}))
        events.append(_metadata(process, row, "thread_sort_index", {"sort_index": row}))
    return events


def _metadata(process: int, row: int, what: str, arguments: Event) -> Event:
    return {"name": what, "ph": "M", "pid": process, "tid": row, "args": arguments}
