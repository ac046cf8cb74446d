"""How data parallelism scales: the same network on more and more devices, by ways of synchronising."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.cluster import Cluster
from simulator.errors import require
from simulator.network.transfers import link_bytes, link_work
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.report.metrics import dollars_per_step
from simulator.report.resource_use import DeviceUse
from simulator.report.usage import Usage, usage_of
from simulator.run import run, step_seconds
from simulator.runtime import IDEAL, Runtime
from simulator.studies.architectures import Architecture
from simulator.studies.asynchronous import run_asynchronously
from simulator.studies.bottleneck import Evidence, find_bottleneck
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Means over the step of one device or one direction of one link, as a monitoring page shows them.

    kind: the device's role or the link's tier. utilisation: share of the step that the device computes, or of the
    link's bandwidth in use. peak_memory_bytes is 0 for links, bytes_per_s for devices.
    """

    name: str
    kind: str
    utilisation: float
    peak_memory_bytes: float = 0.0
    bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingResult:
    """One number of devices under one architecture.

    step_s is batch / throughput (workers that do not wait have no common step). speedup: throughput over that of
    one device, with the same batch per device (weak) or in all (strong); efficiency: speedup / devices.
    communication_share: the part of the step in which the busiest worker does not compute;
    exposed_communication_s: seconds in which a worker waits with a transfer in flight, mean over workers.
    uses: devices, kinds "worker" and "server", and links that carry anything, kind their tier.
    dollars_per_sample: None without prices; dollars_per_epoch: or samples. bottleneck: None on one device.
    sizes_note: as a report's.
    """

    architecture: str
    devices: int
    batch_size: int
    step_s: float
    samples_per_s: float
    speedup: float
    efficiency: float
    communication_share: float
    exposed_communication_s: float
    sent_bytes: float
    epoch_s: float | None
    dollars_per_sample: float | None
    dollars_per_epoch: float | None
    verdict: str
    bottleneck: Evidence | None
    uses: tuple[Use, ...]
    sizes_note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; the bottleneck also in words."""
        words = None if self.bottleneck is None else str(self.bottleneck)
        return {**asdict(self), "bottleneck_words": words}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStudy:
    """What stays the same over all points.

    cluster_of(devices, servers) makes the machine, plan_of(cluster, samples of a step in all, synchronisation) the plan
    of data parallelism that runs there.

    batch_size: per device when `weak`, in all otherwise. epoch_samples: samples of an epoch, None to leave it out.
    """

    profile: Profile
    cluster_of: Callable[[int, int], Cluster]
    plan_of: Callable[[Cluster, int, Synchronisation], Plan]
    batch_size: int
    weak: bool = True
    epoch_samples: int | None = None
    runtime: Runtime = IDEAL


def scale(study: ScalingStudy, architectures: Iterable[Architecture], counts: Sequence[int]) -> Iterator[ScalingResult]:
    """The points of every architecture in turn, each over the numbers of devices in `counts`.

    Raises InputError, e.g. when a device would get no sample.
    """
    one_device = study.cluster_of(1, 0)
    step_s = step_seconds(study.profile, one_device, _plan(study, one_device, Synchronisation()), study.runtime)
    for kind in architectures:
        for devices in counts:
            yield _point(study, kind, devices, study.batch_size / step_s)


def replicated(profile: Profile, devices: int, batch_size: int, synchronisation: Synchronisation) -> Plan:
    """Data parallelism: every layer by sample over equal devices, 0 to `devices` - 1. Raises InputError if one gets
    none."""
    rule = f"each of {devices} devices needs a sample; use a larger batch, fewer devices or weak scaling"
    require(batch_size >= devices, "batch_size", batch_size, rule)
    sharding = Sharding(degrees=(devices, 1, 1, 1), devices=tuple(range(devices)))
    return Plan(
        model=profile.model,
        batch_size=batch_size,
        placements={layer.name: sharding for layer in profile.layers},
        synchronisation=synchronisation,
        strategy="data",
    )


def _plan(study: ScalingStudy, cluster: Cluster, synchronisation: Synchronisation) -> Plan:
    batch_size = study.batch_size * cluster.workers if study.weak else study.batch_size
    return study.plan_of(cluster, batch_size, synchronisation)


def usage_at(study: ScalingStudy, kind: Architecture, devices: int) -> tuple[Usage, Cluster]:
    """Resource usage over one step (or the several of workers that do not wait), and the machine."""
    cluster, _, result = _simulate_point(study, kind, devices)
    return usage_of(result.graph, cluster, result.timeline), cluster


def _simulate_point(study: ScalingStudy, kind: Architecture, devices: int) -> tuple[Cluster, Plan, _SimulatedPoint]:
    alone = devices == 1
    cluster = study.cluster_of(devices, 0 if alone else kind.servers)
    plan = _plan(study, cluster, Synchronisation() if alone else kind.synchronisation)
    waits = alone or kind.waits
    return cluster, plan, _waiting(study, cluster, plan) if waits else _running_ahead(study, kind, cluster, plan)


def _point(study: ScalingStudy, kind: Architecture, devices: int, one_device_samples_per_s: float) -> ScalingResult:
    cluster, plan, result = _simulate_point(study, kind, devices)
    step_s = plan.batch_size / result.samples_per_s
    speedup = result.samples_per_s / one_device_samples_per_s
    step_dollars = dollars_per_step(cluster, step_s)
    sample_dollars = None if step_dollars is None else step_dollars / plan.batch_size
    epoch_s = None if study.epoch_samples is None else study.epoch_samples / result.samples_per_s
    evidence = None if devices == 1 else find_bottleneck(result.graph, cluster, result.timeline, result.step_s_on)
    return ScalingResult(
        architecture=kind.name,
        devices=devices,
        batch_size=plan.batch_size,
        step_s=step_s,
        samples_per_s=result.samples_per_s,
        speedup=speedup,
        efficiency=speedup / devices,
        communication_share=result.communication_share,
        exposed_communication_s=result.exposed_communication_s,
        sent_bytes=result.sent_bytes,
        epoch_s=epoch_s,
        dollars_per_sample=sample_dollars,
        dollars_per_epoch=sample_dollars and study.epoch_samples and sample_dollars * study.epoch_samples,
        verdict=result.verdict,
        bottleneck=evidence,
        uses=result.uses,
        sizes_note=result.sizes_note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SimulatedPoint:
    """What one simulation says; step_s_on(cluster) is the same on another cluster."""

    graph: TaskGraph
    timeline: Timeline
    samples_per_s: float
    communication_share: float
    exposed_communication_s: float
    sent_bytes: float
    verdict: str
    sizes_note: str
    uses: tuple[Use, ...]
    step_s_on: Callable[[Cluster], float]


def _waiting(study: ScalingStudy, cluster: Cluster, plan: Plan) -> _SimulatedPoint:
    """Everyone waits for everyone: one step."""
    done = run(study.profile, cluster, plan, runtime=study.runtime)
    report, workers = done.report, done.report.devices[: cluster.workers]
    return _SimulatedPoint(
        graph=done.graph,
        timeline=done.timeline,
        samples_per_s=report.samples_per_s,
        communication_share=1 - max(device.compute_s for device in workers) / report.step_s,
        exposed_communication_s=ordered_sum(device.exposed_communication_s for device in workers) / len(workers),
        sent_bytes=report.communication_bytes.total,
        verdict=report.verdict,
        sizes_note=report.sizes_note,
        uses=_uses(cluster, done.graph, done.timeline, report.devices),
        step_s_on=lambda changed: step_seconds(study.profile, changed, plan, study.runtime),
    )


def _running_ahead(study: ScalingStudy, kind: Architecture, cluster: Cluster, plan: Plan) -> _SimulatedPoint:
    """Workers run ahead of each other: several steps, of which the mean counts. Memory is that of one step."""
    steps = run_asynchronously(study.profile, cluster, plan, staleness=kind.staleness, runtime=study.runtime)
    once = run(study.profile, cluster, plan, runtime=study.runtime).report
    sent = steps.graph.bytes.sum() / steps.ends_s.shape[1]

    def step_s_on(changed: Cluster) -> float:
        again = run_asynchronously(study.profile, changed, plan, staleness=kind.staleness, runtime=study.runtime)
        return plan.batch_size / again.samples_per_s

    return _SimulatedPoint(
        graph=steps.graph,
        timeline=steps.timeline,
        samples_per_s=steps.samples_per_s,
        communication_share=max(0.0, 1 - float((steps.compute_s * steps.steps_per_s).max())),
        exposed_communication_s=float((1 / steps.steps_per_s - steps.compute_s).mean()),
        sent_bytes=float(sent),
        verdict=once.verdict,
        sizes_note=once.sizes_note,
        uses=_uses(cluster, steps.graph, steps.timeline, once.devices),
        step_s_on=step_s_on,
    )


def _uses(cluster: Cluster, graph: TaskGraph, timeline: Timeline, once: Sequence[DeviceUse]) -> tuple[Use, ...]:
    """Devices, with the memory of one step, then the links that carry anything."""
    compute, span_s = np.zeros(len(cluster.devices)), timeline.step_s
    computes = graph.route < 0
    np.add.at(compute, graph.device[computes], (timeline.end_s - timeline.start_s)[computes])
    uses = [
        Use(
            name=device.name,
            kind=device.role,
            utilisation=float(busy_s) / span_s,
            peak_memory_bytes=use.peak_memory_bytes,
        )
        for device, busy_s, use in zip(cluster.devices, compute, once, strict=True)
    ]
    carried, work = link_bytes(graph, cluster) / span_s, link_work(graph, cluster) / span_s
    for link, rate, taken in zip(cluster.links, carried.tolist(), work.tolist(), strict=True):
        if rate:
            share = taken / link.bandwidth_bytes_per_s
            uses.append(Use(name=link.name, kind=link.tier, utilisation=share, bytes_per_s=rate))
    return tuple(uses)
