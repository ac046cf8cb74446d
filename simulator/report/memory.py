"""How much memory each device needs during a step."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import engine_name
from simulator.engine.compiled import compiled_peaks
from simulator.memory_fit import BORDER, Fit
from simulator.report.time_spans import in_rows, rows_of_equal_length
from simulator.taskgraph import Floats, Ints, TaskGraph
from simulator.timeline import Timeline
from simulator.units import format_bytes


def usage(graph: TaskGraph, timeline: Timeline, device: int) -> tuple[Floats, Floats]:
    """(times in s, bytes allocated from then on) of one device; what is freed at a moment can be taken again then."""
    times, owner, change = _changes(graph, timeline)
    times, change = times[owner == device], change[owner == device]
    order = np.argsort(times, kind="stable")
    level = graph.static_bytes[device] + np.cumsum(change[order])
    return np.concatenate([[0.0], times[order]]), np.concatenate([[graph.static_bytes[device]], level])


def peak_bytes(graph: TaskGraph, timeline: Timeline, devices: int) -> Floats:
    """The most memory that each of `devices` devices holds at a time."""
    times, owner, change = _changes(graph, timeline)
    if engine_name() == "compiled":
        return compiled_peaks(times, change, owner, graph.static_bytes)
    change = change[in_rows(owner, times, devices)]
    peaks = graph.static_bytes.copy()
    for rows, at in rows_of_equal_length(np.bincount(owner, minlength=devices)):
        level = graph.static_bytes[rows, None] + np.cumsum(change[at], axis=1)  # (rows, length)
        peaks[rows] = np.maximum(peaks[rows], level.max(axis=1))
    return peaks


def _changes(graph: TaskGraph, timeline: Timeline) -> tuple[Floats, Ints, Floats]:
    """(time in s, device, bytes taken or, below 0, given back), what is given back first."""
    ends, starts, owner, change = graph.kept(_changing, lambda: _changing(graph))
    return np.concatenate([timeline.end_s[ends], timeline.start_s[starts]]), owner, change


def _changing(graph: TaskGraph) -> tuple[Ints, Ints, Ints, Floats]:
    """Tasks at whose end memory is given back, tasks at whose start it is taken; of both the device and the bytes."""
    own = np.flatnonzero((graph.device >= 0) & ((graph.allocated_bytes > 0) | (graph.freed_bytes > 0)))
    back = graph.allocation_bytes < 0
    task, device, size = graph.allocation_task, graph.allocation_device, graph.allocation_bytes
    change = [size[back], -graph.freed_bytes[own], graph.allocated_bytes[own], size[~back]]
    owner = [device[back], graph.device[own], graph.device[own], device[~back]]
    ends, starts = np.append(task[back], own), np.append(own, task[~back])
    return ends, starts, np.concatenate(owner), np.concatenate(change)


def most_bytes(graph: TaskGraph, devices: int) -> Floats:
    """What no order of `graph`'s tasks exceeds on each of `devices` devices: all that they allocate, nothing freed."""
    on_device = graph.device >= 0
    allocated = np.bincount(graph.device[on_device], weights=graph.allocated_bytes[on_device], minlength=devices)
    taken = np.maximum(graph.allocation_bytes, 0.0)
    elsewhere = np.bincount(graph.allocation_device, weights=taken, minlength=devices)
    return np.asarray(graph.static_bytes + allocated + elsewhere)


def verdict(static_bytes: Floats, cluster: Cluster, peaks: Floats, broken_rule: str = "") -> tuple[Fit, str]:
    """Whether everything fits, and if that is not sure, which device needs how much of what, mostly for what.

    static_bytes: of each device what stays allocated; peaks: see `peak_bytes`. broken_rule: of the runtime, in words.
    """
    if broken_rule:
        return "breaks a rule", f"breaks a rule: {broken_rule}"
    worst, fullest = -1, BORDER
    for number, device in enumerate(cluster.devices):
        if device.memory_bytes is not None and peaks[number] / device.memory_bytes > fullest:
            worst, fullest = number, peaks[number] / device.memory_bytes
    if worst < 0:
        return "fits", ""
    static, capacity = static_bytes[worst], cluster.devices[worst].memory_bytes or 0
    mostly = "parameters, gradients and optimizer state" if static > peaks[worst] / 2 else "saved activations"
    name = cluster.devices[worst].name
    need = f"{name} needs {format_bytes(peaks[worst])} of {format_bytes(capacity)}, mostly {mostly}"
    if fullest > 1:
        return "does not fit", f"does not fit: {need}"
    return "border", f"border: {need}; predicted peaks are some per cent off"
