"""A run's spans as one block of bytes that the canvas reads without parsing, and single tasks in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dashboard.figures.style import KINDS
from dashboard.state.device_groups import DeviceGroup, device_groups, short_names, slowest
from simulator.cluster import Cluster
from simulator.report.critical_path import binding_chain
from simulator.report.time_spans import spread, union
from simulator.run import Run
from simulator.taskgraph import Floats, Ints, Kind
from simulator.units import format_bytes, format_time

BINS = 400
MOST_STRIP = 64
"""Workers up to which the strip of utilisation is over all of them, else over those shown."""
CRITICAL = 1
"""The bit of `flag` that marks a span of the chain that bound the step."""
COLUMNS = {"start": "<f8", "seconds": "<f4", "task": "<u4", "lane": "<u2", "layer": "<i2", "microbatch": "<i2",
           "kind": "<u1", "flag": "<u1"}  # fmt: skip
"""In order of falling item size, so that each begins where its items may."""


def encode(run: Run, cluster: Cluster, opened: int | None = None) -> bytes:
    """Header length (uint32), header (JSON, padded to 8 bytes), then COLUMNS, little-endian, sorted by lane and start.

    The d-th device shown has lane 2d for what it computes and 2d + 1 for the transfers that reach it; a collective
    stands in the lane of each of its devices. Of many devices the slowest of each group is shown; opened: the group
    whose devices are shown.
    """
    groups = device_groups(cluster, opened)
    shown = slowest(groups, run.report)
    tasks, lanes = _placed(run, shown)
    start = run.timeline.start_s[tasks]
    order = np.lexsort((start, lanes))
    tasks, lanes = tasks[order], lanes[order]
    flags = np.zeros(len(run.graph), dtype=np.uint8)
    flags[binding_chain(run.graph, run.timeline)] |= CRITICAL
    columns: dict[str, Any] = {
        "start": run.timeline.start_s[tasks],
        "seconds": (run.timeline.end_s - run.timeline.start_s)[tasks],
        "task": tasks,
        "lane": lanes,
        "layer": run.graph.layer[tasks],
        "microbatch": run.graph.microbatch[tasks],
        "kind": run.graph.kind[tasks],
        "flag": flags[tasks],
    }
    return _header(run, cluster, lanes, groups, shown) + b"".join(
        columns[name].astype(kind).tobytes() for name, kind in COLUMNS.items()
    )


def utilisation(run: Run, workers: Sequence[int]) -> Floats:
    """Share of these workers that compute, in equal parts of the step; shape (BINS,)."""
    graph, width_s = run.graph, run.report.step_s / BINS
    if not width_s:
        return np.zeros(BINS)
    edges_s = np.linspace(0.0, run.report.step_s, BINS + 1)
    spans = np.stack([run.timeline.start_s, run.timeline.end_s], axis=1)  # (tasks, 2)
    computed_s = np.zeros(BINS)
    for device in workers:
        computed_s += spread(union(spans[(graph.route < 0) & (graph.device == device)]), edges_s)
    return np.clip(computed_s / (width_s * len(workers)), 0.0, 1.0)


def describe_task(run: Run, cluster: Cluster, task: int) -> dict[str, Any]:
    """One task for people: what it is, when it ran, and what it waited for, each as {label: text}.

    `waited` is the task that it began after (its last dependency, or the device's task before), -1 for none.
    """
    graph, timeline = run.graph, run.timeline
    start, end = float(timeline.start_s[task]), float(timeline.end_s[task])
    before = graph.predecessors(task)
    ready_s = float(timeline.end_s[before].max()) if len(before) else 0.0
    facts = {
        "starts": format_time(start),
        "takes": format_time(end - start),
        "ready": format_time(ready_s),
        "ready → start": format_time(start - ready_s),
    }
    if graph.is_transfer[task]:
        per_hop = " per hop" if len(graph.routes[graph.route[task]].pairs) > 1 else ""
        facts["bytes"] = format_bytes(float(graph.bytes[task])) + per_hop
        facts["rate"] = f"{graph.bytes[task] / (end - start) / 1e9:.3g} GB/s" if end > start else "instant"
    names = short_names(cluster)
    waited = int(before[np.argmax(timeline.end_s[before])]) if len(before) else -1
    return {
        "title": graph.describe(task, names),
        "facts": facts,
        "waited": waited,
        "waited_title": graph.describe(waited, names) if waited >= 0 else "nothing: it begins the step",
    }


def table_rows(run: Run, cluster: Cluster, first: int, last: int, sort: str, descending: bool) -> list[dict[str, Any]]:
    """Tasks `first` to `last` (exclusive) of the whole table ordered by a column, by start where the name is none."""
    graph, timeline = run.graph, run.timeline
    keys: dict[str, Any] = {
        "task": np.arange(len(graph)),
        "kind": graph.kind,
        "where": graph.device,
        "layer": graph.layer,
        "microbatch": graph.microbatch,
        "start_ms": timeline.start_s,
        "takes_ms": timeline.end_s - timeline.start_s,
        "bytes": graph.bytes,
    }
    key = keys.get(sort, timeline.start_s)
    order = np.argsort(-key.astype(float) if descending else key, kind="stable")
    return [_task_row(run, cluster, int(task)) for task in order[first:last]]


def _task_row(run: Run, cluster: Cluster, task: int) -> dict[str, Any]:
    """One row of the table of tasks."""
    graph, timeline = run.graph, run.timeline
    names, layer = short_names(cluster), int(graph.layer[task])
    route = graph.routes[graph.route[task]] if graph.route[task] >= 0 else None
    if route is None:
        where = names[graph.device[task]]
    elif len(route.pairs) == 1:
        where = " → ".join(names[device] for device in route.pairs[0])
    else:
        where = f"{len(route.devices)} devices"
    return {
        "task": task,
        "kind": Kind(graph.kind[task]).name.lower(),
        "where": where,
        "layer": graph.layer_names[layer] if layer >= 0 else "",
        "microbatch": int(graph.microbatch[task]) if graph.microbatch[task] >= 0 else None,
        "start_ms": float(timeline.start_s[task] * 1e3),
        "takes_ms": float((timeline.end_s[task] - timeline.start_s[task]) * 1e3),
        "bytes": float(graph.bytes[task]) if route else None,
    }


def _placed(run: Run, shown: Sequence[int]) -> tuple[Ints, Ints]:
    """(task, lane) of every span drawn."""
    graph = run.graph
    row = np.full(len(run.report.devices), -1)
    row[list(shown)] = np.arange(len(shown))
    compute = np.flatnonzero(~graph.is_transfer)
    compute = compute[row[graph.device[compute]] >= 0]
    tasks, lanes = [compute], [2 * row[graph.device[compute]]]
    by_route = np.argsort(graph.route, kind="stable")
    edges = np.searchsorted(graph.route[by_route], np.arange(len(graph.routes) + 1))
    for number, route in enumerate(graph.routes):
        carried = by_route[edges[number] : edges[number + 1]]
        for device in {pair[1] for pair in route.pairs if row[pair[1]] >= 0}:
            tasks.append(carried)
            lanes.append(np.full(len(carried), 2 * row[device] + 1))
    return np.concatenate(tasks), np.concatenate(lanes)  # (spans,) each


def _header(run: Run, cluster: Cluster, lanes: Ints, groups: Sequence[DeviceGroup], shown: Sequence[int]) -> bytes:
    count = 2 * len(shown)
    workers = [device for device in shown if device < cluster.workers]
    workers = list(range(cluster.workers)) if cluster.workers <= MOST_STRIP else workers
    header = {
        "spans": len(lanes),
        "tasks": len(run.graph),
        "step_s": run.report.step_s,
        "devices": [group.name for group in groups],
        "device_ids": list(shown),
        "members": [len(group.devices) for group in groups],
        "lane_start": np.searchsorted(lanes, np.arange(count + 1)).tolist(),
        "layers": list(run.graph.layer_names),
        "kinds": [kind.name.lower() for kind in Kind],
        "colours": [KINDS[kind] for kind in Kind],
        "columns": {name: kind.removeprefix("<") for name, kind in COLUMNS.items()},
        "utilisation": np.round(utilisation(run, workers), 3).tolist(),
    }
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return len(text).to_bytes(4, "little") + text
