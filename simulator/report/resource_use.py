"""Where the step of each device went, and what each link carried: rows of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.report.critical_path import taken_s
from simulator.report.time_spans import covered_s
from simulator.report.traffic import Communication, touches
from simulator.taskgraph import Floats, Ints, TaskGraph
from simulator.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """Where one device's step went; the five times add up to the step.

    launch_s: its next task waits for nothing but its host, which has not launched it yet. exposed_communication_s: else
    not computing while a transfer from or to the device is in flight. bubble_s: the rest of the waiting of one that
    computes in this step; idle_s: that of one that does not.
    memory_bytes is the capacity, None when unlimited. static_bytes stay from step to step: parameters, gradients and
    optimizer state, of which the next three say how much, weight versions and buffers of a runtime.
    """

    name: str
    compute_s: float
    launch_s: float = 0.0
    exposed_communication_s: float
    bubble_s: float
    idle_s: float
    utilisation: float
    peak_memory_bytes: float
    static_bytes: float
    parameter_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    memory_bytes: int | None
    sent_bytes: float
    received_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Bytes over one link, and the share of the step for which they take all of it."""

    name: str
    tier: str
    bytes: float
    utilisation: float


def occupied_s(graph: TaskGraph, timeline: Timeline, owner: Ints) -> tuple[Floats, Floats, Floats]:
    """Seconds in which each device computes, waits for a launch, and neither while a transfer from or to it is in
    flight.

    owner: by device, the one whose tasks stand for its own, shape (devices,), as all that are returned.
    """
    count = len(owner)
    tasks, places = graph.kept.get((_on_devices, count), lambda: _on_devices(graph, owner))
    end_s = timeline.end_s[tasks]
    covered = covered_s(taken_s(graph, timeline)[tasks], end_s, places, 2 * count)
    active_s, taken = covered[:count][owner], covered[count:][owner]
    busy_s = taken
    if graph.is_launched:
        busy_s = covered_s(timeline.start_s[tasks], end_s, places, 2 * count)[count:][owner]
    return busy_s, taken - busy_s, active_s - taken


def spent_s(
    step_s: float, computes: npt.NDArray[np.bool_], busy_s: Floats, launch_s: Floats, exposed_s: Floats
) -> dict[str, Floats]:
    """Where the step of each device went: columns of DeviceUse. All arrays have shape (devices,).

    computes: which devices have compute tasks at all.
    """
    waiting_s = np.maximum(step_s - (busy_s + launch_s) - exposed_s, 0.0)  # rounded, it may come out below
    return {
        "compute_s": busy_s,
        "launch_s": launch_s,
        "exposed_communication_s": exposed_s,
        "bubble_s": np.where(computes, waiting_s, 0.0),
        "idle_s": np.where(computes, 0.0, waiting_s),
        "utilisation": busy_s / step_s if step_s else np.zeros(len(busy_s)),
    }


def _on_devices(graph: TaskGraph, owner: Ints) -> tuple[Ints, Ints]:
    """Compute tasks and the transfers that touch a device, with the device of each; then compute tasks alone, with
    numbers that follow the devices."""
    computes = np.flatnonzero(~graph.is_transfer)
    transfers, ends = touches(graph, owner == np.arange(len(owner)))
    places = graph.device[computes], ends, len(owner) + graph.device[computes]
    return np.concatenate([computes, transfers, computes]), np.concatenate(places)


def device_rows(
    cluster: Cluster,
    spent: Mapping[str, Floats],
    peaks: Floats,
    static_bytes: Floats,
    static: Mapping[str, Floats],
    communication: Communication,
) -> tuple[DeviceUse, ...]:
    """A row for each device; spent: see `spent_s`; static: see `static_parts` of `lowering.gradients`."""
    columns = {
        **spent,
        "peak_memory_bytes": peaks,
        "static_bytes": static_bytes,
        "parameter_bytes": static["parameters"],
        "gradient_bytes": static["gradients"],
        "optimizer_bytes": static["optimizer"],
        "sent_bytes": communication.sent_bytes,
        "received_bytes": communication.received_bytes,
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return tuple(
        DeviceUse(name=device.name, memory_bytes=device.memory_bytes, **dict(zip(columns, row, strict=True)))
        for device, row in zip(cluster.devices, rows, strict=True)
    )


def link_rows(cluster: Cluster, carried: Floats, work: Floats, step_s: float) -> tuple[LinkUse, ...]:
    """A row for each link; carried: bytes, work: see `link_work`, both of shape (links,)."""
    return tuple(
        LinkUse(
            name=link.name,
            tier=link.tier,
            bytes=size,
            utilisation=taken / (link.bandwidth_bytes_per_s * step_s) if step_s else 0.0,
        )
        for link, size, taken in zip(cluster.links, carried.tolist(), work.tolist(), strict=True)
    )


def busiest_links_s(cluster: Cluster, work: Floats) -> dict[str, float]:
    """By tier the seconds for which its busiest link is full; work: as for `link_rows`."""
    tiers, bandwidths = tiers_and_bandwidths(cluster)
    return {tier: float((work[links] / bandwidths[links]).max()) for tier, links in tiers.items()}


def tiers_and_bandwidths(cluster: Cluster) -> tuple[dict[str, Ints], Floats]:
    """The numbers of the links of each tier, and the bandwidth of every link; kept with the cluster."""
    return cluster.kept.get(tiers_and_bandwidths, lambda: _tiers_and_bandwidths(cluster))


def _tiers_and_bandwidths(cluster: Cluster) -> tuple[dict[str, Ints], Floats]:
    names = np.array([link.tier for link in cluster.links])
    tiers = {tier: np.flatnonzero(names == tier) for tier in cluster.tiers}
    return tiers, np.array([link.bandwidth_bytes_per_s for link in cluster.links])
