"""How much memory each device needs during a step."""

from __future__ import annotations

from typing import Literal

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import engine_name
from simulator.engine.compiled import compiled_peaks
from simulator.report.time_spans import of_each_owner
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph
from simulator.timeline import Timeline
from simulator.units import format_bytes

Fit = Literal["fits", "border", "does not fit", "breaks a rule"]
"""border: predicted to fit, but too narrowly to be sure; breaks a rule: of the runtime, whatever the memory."""
BORDER = 0.94
"""Of the limit: closer, a verdict is not safe, as predicted peaks are some per cent off."""


def usage(graph: TaskGraph, timeline: Timeline, cluster: Cluster, device: int) -> tuple[Floats, Floats]:
    """(times in s, bytes allocated from then on) of one device; what is freed at a moment can be taken again then."""
    times, level = _levels(graph, device, *_changes(graph, timeline))
    if _takes_ahead(graph):
        most = max(level.max(), _full_bytes(cluster)[device])
        times, level = _levels(graph, device, *_changes(graph, timeline, ahead=True))
        level = np.minimum(level, most)
    return times, level


def _levels(graph: TaskGraph, device: int, times: Floats, owner: Ints, change: Floats) -> tuple[Floats, Floats]:
    times, change = times[owner == device], change[owner == device]
    order = np.argsort(times, kind="stable")
    level = graph.static_bytes[device] + np.cumsum(change[order])
    return np.append(0.0, times[order]), np.append(graph.static_bytes[device], level)


def peak_bytes(graph: TaskGraph, timeline: Timeline, cluster: Cluster) -> Floats:
    """The most memory that each device holds at a time, shape (devices,).

    What collectives fill is taken as its reader is launched, where memory allows: an allocator has back what is over
    BORDER of it.
    """
    needed = _peaks(graph, *_changes(graph, timeline))
    if not _takes_ahead(graph):
        return needed
    return np.maximum(needed, np.minimum(_peaks(graph, *_changes(graph, timeline, ahead=True)), _full_bytes(cluster)))


def _takes_ahead(graph: TaskGraph) -> bool:
    return graph.launch_depth > 0 and graph.is_launched


def _full_bytes(cluster: Cluster) -> Floats:
    """Of each device, what an allocator gives out before it asks for anything back, shape (devices,)."""
    sizes = [np.inf if device.memory_bytes is None else device.memory_bytes for device in cluster.devices]
    return BORDER * np.array(sizes)


def _peaks(graph: TaskGraph, times: Floats, owner: Ints, change: Floats) -> Floats:
    devices = len(graph.static_bytes)
    if engine_name() == "compiled":
        return compiled_peaks(times, change, owner, graph.static_bytes)
    order = np.argsort(times, kind="stable")
    changes = zip(graph.static_bytes, of_each_owner(change[order], owner[order], devices), strict=True)
    return np.array([(held + np.cumsum(of_device)).max(initial=held) for held, of_device in changes])


def _changes(graph: TaskGraph, timeline: Timeline, ahead: bool = False) -> tuple[Floats, Ints, Floats]:
    """(time in s, device, bytes taken or, below 0, given back), what is given back first.

    ahead: what collectives fill is taken as soon as its reader is launched.
    """
    ends, starts, owner, change = graph.kept.get(_changing, lambda: _changing(graph))
    taken_s = timeline.start_s[starts]
    if ahead:
        number, reader = graph.kept.get(_readers, lambda: _readers(graph))
        behind = taken_s[len(starts) - len(number) :]  # allocations elsewhere stand last
        behind[number >= 0] = np.minimum(behind, launched_s(graph, timeline)[reader])[number >= 0]
    return np.concatenate([timeline.end_s[ends], taken_s]), owner, change


def launched_s(graph: TaskGraph, timeline: Timeline) -> Floats:
    """When the host of each compute task has launched it, see `TaskGraph`; the start of every other, shape (tasks,)."""
    done_s, depth = timeline.start_s.copy(), graph.launch_depth
    compute = np.flatnonzero(~graph.is_transfer)
    order = compute[np.lexsort((compute, timeline.start_s[compute], graph.device[compute]))]
    for tasks in np.split(order, np.flatnonzero(np.diff(graph.device[order])) + 1):
        launch_s, start_s = graph.launch_s[tasks], timeline.start_s[tasks]
        waits_s = np.where(graph.host_waits[tasks], start_s - launch_s, 0.0)
        waits_s[depth:] = np.maximum(waits_s[depth:], start_s[:-depth])
        total_s = np.cumsum(launch_s)
        done_s[tasks] = np.minimum(total_s + np.maximum.accumulate(waits_s - (total_s - launch_s)), start_s)
    return done_s


def _changing(graph: TaskGraph) -> tuple[Ints, Ints, Ints, Floats]:
    """Tasks at whose end memory is given back, tasks at whose start it is taken; of both the device and the bytes."""
    own = np.flatnonzero(graph.allocated_bytes + graph.freed_bytes)
    back = graph.allocation_bytes < 0
    task, device, size = graph.allocation_task, graph.allocation_device, graph.allocation_bytes
    change = [size[back], -graph.freed_bytes[own], graph.allocated_bytes[own], size[~back]]
    owner = [device[back], graph.device[own], graph.device[own], device[~back]]
    ends, starts = np.append(task[back], own), np.append(own, task[~back])
    return ends, starts, np.concatenate(owner), np.concatenate(change)


def _readers(graph: TaskGraph) -> tuple[Ints, Ints]:
    """Of what tasks take elsewhere, entry after entry: the device's first task that waits for that, if a collective
    between passes fills it; -1 and 0 where none does. Shape (entries,) both."""
    taken = graph.allocation_bytes >= 0
    filling, devices = graph.allocation_task[taken], len(graph.static_bytes)
    waits = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_start))
    own = ~graph.is_transfer[waits]
    fills = graph.dependencies[own] * devices + graph.device[waits[own]]
    keys, first = np.unique(fills, return_index=True)  # tasks stand in order, so that the first is the earliest
    wanted = filling * devices + graph.allocation_device[taken]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    between = np.isin(graph.kind[filling], (Kind.ACTIVATION, Kind.GRADIENT))
    reads = (keys[at] == wanted) & between
    return np.where(reads, at, -1), np.where(reads, waits[own][first[at]], 0)


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
    worst, fullest = -1, BORDER * (1 - 1e-9)  # at BORDER an allocator begins to have back what was launched ahead
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
