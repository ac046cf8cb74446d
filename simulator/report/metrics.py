"""What a step cost: Timeline, TaskGraph -> Report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.costs import shard_seconds
from simulator.lowering.gradients import static_parts
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.transfers import link_bytes
from simulator.ordered_sum import ordered_sum
from simulator.report import memory
from simulator.report.critical_path import critical_path_s, path_shares
from simulator.report.layer_use import LayerUse, layers_use
from simulator.report.time_spans import covered_s
from simulator.report.traffic import Communication, route_bytes, touches, traffic_pairs
from simulator.report.unmeasured_sizes import unmeasured_sizes
from simulator.taskgraph import Floats, Kind, TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile

PHASES: Mapping[str, Kind] = {
    "forward": Kind.ACTIVATION,
    "backward": Kind.GRADIENT,
    "synchronisation": Kind.SYNCHRONISATION,
    "parameters": Kind.PARAMETERS,
}
"""What is sent in each phase of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """Where one device's step went; the four times add up to the step.

    exposed_communication_s: not computing while a transfer from or to the device is in flight. bubble_s: the
    rest of the waiting of a device that computes in this step; idle_s: that of one that does not.
    memory_bytes is the capacity, None when unlimited. static_bytes stay from step to step: parameters, gradients and
    optimizer state, of which the next three say how much, weight versions and buffers of a runtime.
    """

    name: str
    compute_s: float
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
    """Bytes over one link, and the share of what it could have carried in the step."""

    name: str
    tier: str
    bytes: float
    utilisation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The kind of resource ("compute", "server", a tier of links) with the most of the binding chain; its worst one."""

    resource: str
    worst: str
    share: float

    def __str__(self) -> str:
        what = {"compute": "compute", "server": "servers"}.get(self.resource, f"{self.resource} links")
        return f"{what} ({self.share:.0%} of the step, mostly {self.worst})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One step in figures.

    load_balance_ratio: most loaded worker's compute seconds / mean over all workers. bubble_ratio: bubble
    seconds / step, mean over the workers that compute. speedup: the batch on one worker, no waiting, / step;
    efficiency: speedup / number of workers. critical_path_s: longest dependency chain when nothing
    contends. path_s: seconds of the step by resource along the chain that bound it. verdict: empty when the
    step fits into memory. dollars_per_step: None without prices. sizes_note: which compute times were not measured at
    their size, empty when all were; step_band_s: (low, high) of the step for it, None where nothing says how far.
    engine: of the timeline.
    """

    model: str
    cluster: str
    strategy: str
    batch_size: int
    microbatches: int
    step_s: float
    samples_per_s: float
    speedup: float
    efficiency: float
    load_balance_ratio: float
    bubble_ratio: float
    communication_bytes: Communication
    peak_memory_bytes: float
    fits: bool
    verdict: str
    devices: tuple[DeviceUse, ...]
    links: tuple[LinkUse, ...]
    layers: tuple[LayerUse, ...]
    critical_path_s: float
    path_s: Mapping[str, float]
    bottleneck: Bottleneck
    dollars_per_step: float | None
    tasks: int
    sizes_note: str = ""
    step_band_s: tuple[float, float] | None = None
    engine: str

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings, ready for JSON."""
        return {**asdict(self), "communication_bytes": self.communication_bytes.to_dict()}


def measure(model: ShardedModel, cluster: Cluster, graph: TaskGraph, timeline: Timeline) -> Report:
    """The Report of a timeline of `graph`, which `model` was lowered to."""
    profile, plan = model.profile, model.plan
    step_s = timeline.step_s
    compute = _compute_seconds(graph, cluster)
    peaks = memory.peak_bytes(graph, timeline, len(cluster.devices))
    verdict = memory.verdict(graph, cluster, peaks)
    communication = _communication(graph, cluster)
    devices = _devices(graph, cluster, timeline, compute, peaks, communication, static_parts(model, cluster))
    used = [device for device, seconds in zip(devices, compute, strict=True) if seconds > 0][: cluster.workers]
    mean = compute[: cluster.workers].mean()
    one_s = one_device_s(profile, cluster, plan.batch_size)
    shares = path_shares(graph, cluster, timeline)
    computed_s = ordered_sum(seconds for (resource, _), seconds in shares.items() if resource == "compute")
    sizes = unmeasured_sizes(model)
    return Report(
        model=profile.model,
        cluster=cluster.name,
        strategy=plan.strategy,
        batch_size=plan.batch_size,
        microbatches=plan.microbatches,
        step_s=step_s,
        samples_per_s=plan.batch_size / step_s if step_s else 0.0,
        speedup=one_s / step_s if step_s else 0.0,
        efficiency=one_s / step_s / cluster.workers if step_s else 0.0,
        load_balance_ratio=float(compute[: cluster.workers].max() / mean) if mean else 1.0,
        bubble_ratio=ordered_sum(device.bubble_s for device in used) / (step_s * len(used)) if used else 0.0,
        communication_bytes=communication,
        peak_memory_bytes=float(peaks.max()),
        fits=not verdict,
        verdict=verdict,
        devices=devices,
        links=_links(graph, cluster, step_s),
        layers=layers_use(model, graph),
        critical_path_s=critical_path_s(graph, cluster),
        path_s={" ".join(resource): seconds for resource, seconds in shares.items()},
        bottleneck=_bottleneck(shares, step_s),
        dollars_per_step=dollars_per_step(cluster, step_s),
        tasks=len(graph),
        sizes_note=sizes.note,
        step_band_s=sizes.band_s(step_s, computed_s),
        engine=timeline.engine,
    )


def one_device_s(profile: Profile, cluster: Cluster, batch_size: int) -> float:
    """The whole batch on the fastest worker alone, one layer after the other, with the update."""
    return _one_device_s(profile, batch_size) / max(cluster.speeds[: cluster.workers])


@lru_cache(maxsize=64)
def _one_device_s(profile: Profile, batch_size: int) -> float:
    passes = ordered_sum(sum(shard_seconds(profile, layer, batch_size)) for layer in profile.layers)
    return passes + ordered_sum(layer.update_s for layer in profile.layers)


def _compute_seconds(graph: TaskGraph, cluster: Cluster) -> Floats:
    computes = ~graph.is_transfer
    seconds = np.bincount(graph.device[computes], weights=graph.seconds[computes], minlength=len(cluster.devices))
    return seconds.astype(np.float64)


def _communication(graph: TaskGraph, cluster: Cluster) -> Communication:
    pairs, devices = [len(route.pairs) for route in graph.routes], len(cluster.devices)
    totals = {
        phase: float(
            ordered_sum(size * count for size, count in zip(route_bytes(graph, kind).tolist(), pairs, strict=True))
        )
        for phase, kind in PHASES.items()
    }
    source, target, size_bytes = traffic_pairs(graph, devices, PHASES.values())
    return Communication(
        total=ordered_sum(totals.values()),
        **totals,
        devices=devices,
        source=source,
        target=target,
        size_bytes=size_bytes,
    )


def _devices(
    graph: TaskGraph,
    cluster: Cluster,
    timeline: Timeline,
    compute: Floats,
    peaks: Floats,
    communication: Communication,
    static: Mapping[str, Floats],
) -> tuple[DeviceUse, ...]:
    step_s, count = timeline.step_s, len(cluster.devices)
    spans = np.stack([timeline.start_s, timeline.end_s], axis=1)  # (tasks, 2)
    computes = np.flatnonzero(graph.route < 0)
    transfers, ends = touches(graph)
    busy_s = covered_s(spans[computes], graph.device[computes], count)
    active = np.append(graph.device[computes], ends)
    active_s = covered_s(spans[np.append(computes, transfers)], active, count)
    exposed_s = active_s - busy_s
    waiting_s = step_s - busy_s - exposed_s
    columns = {
        "compute_s": busy_s,
        "exposed_communication_s": exposed_s,
        "bubble_s": np.where(compute > 0, waiting_s, 0.0),
        "idle_s": np.where(compute > 0, 0.0, waiting_s),
        "utilisation": busy_s / step_s if step_s else np.zeros(count),
        "peak_memory_bytes": peaks,
        "static_bytes": graph.static_bytes,
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


def _links(graph: TaskGraph, cluster: Cluster, step_s: float) -> tuple[LinkUse, ...]:
    return tuple(
        LinkUse(
            name=link.name,
            tier=link.tier,
            bytes=float(size),
            utilisation=float(size) / (link.bandwidth_bytes_per_s * step_s) if step_s else 0.0,
        )
        for link, size in zip(cluster.links, link_bytes(graph, cluster), strict=True)
    )


def _bottleneck(shares: Mapping[tuple[str, str], float], step_s: float) -> Bottleneck:
    totals: dict[str, float] = {}
    for (resource, _), seconds in shares.items():
        totals[resource] = totals.get(resource, 0.0) + seconds
    if not totals or not step_s:
        return Bottleneck(resource="compute", worst="", share=0.0)
    resource = max(totals, key=lambda name: totals[name])
    worst = max((name for name in shares if name[0] == resource), key=lambda name: shares[name])
    return Bottleneck(resource=resource, worst=worst[1], share=totals[resource] / step_s)


def dollars_per_step(cluster: Cluster, step_s: float) -> float | None:
    """What `step_s` seconds of all devices cost; None where none has a price."""
    prices = [device.dollars_per_hour for device in cluster.devices if device.dollars_per_hour is not None]
    return ordered_sum(prices) * step_s / 3600 if prices else None
