"""What a step cost: Timeline, TaskGraph -> Report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from simulator.cluster import Cluster
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import static_parts
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan
from simulator.report import memory
from simulator.report.critical_path import LAUNCHES
from simulator.report.deferred_rows import DeferredRows
from simulator.report.layer_use import LayerUse
from simulator.report.memory import Fit
from simulator.report.resource_use import DeviceUse, LinkUse, busiest_links_s, device_rows, link_rows, spent_s
from simulator.report.step_totals import StepTotals, totals_of
from simulator.report.traffic import Communication
from simulator.report.unmeasured_sizes import unmeasured_sizes
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats, TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The kind of resource with the most of the binding chain, and its worst one.

    A kind is "compute", "server", LAUNCHES or a tier of links.
    """

    resource: str
    worst: str
    share: float

    def __str__(self) -> str:
        what = {"compute": "compute", "server": "servers", LAUNCHES: LAUNCHES}.get(
            self.resource, f"{self.resource} links"
        )
        return f"{what} ({self.share:.0%} of the step, mostly {self.worst})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One step in figures."""

    model: str
    """The profile's."""
    cluster: str
    """Its name."""
    strategy: str
    """The plan's."""
    batch_size: int
    """Samples of a step."""
    microbatches: int
    """Equal parts of it."""
    step_s: float
    """From the first task to the end of the last."""
    samples_per_s: float
    """batch_size / step_s."""
    speedup: float
    """Samples per second over those of one worker with an equal part of the batch, which waits for nobody (weak
    scaling)."""
    efficiency: float
    """speedup / number of workers."""
    load_balance_ratio: float
    """Most loaded worker's compute seconds / mean over all workers."""
    bubble_ratio: float
    """Bubble seconds / step_s, mean over the workers that compute."""
    communication_bytes: Communication
    """What messages carry, by phase."""
    peak_memory_bytes: float
    """Of the device with the largest peak."""
    fits: bool
    """Whether it is predicted to."""
    fit: Fit
    """Whether the step runs within memory and the rules of its runtime."""
    verdict: str
    """Why not, or why it is not sure; empty where it fits."""
    devices: Sequence[DeviceUse]
    """What each did and held."""
    links: Sequence[LinkUse]
    """What each carried."""
    layers: Sequence[LayerUse]
    """What each computed and sent."""
    critical_path_s: float
    """The longest chain of dependencies, where nothing contends."""
    path_s: Mapping[str, float]
    """Seconds of the step by resource, along the chain that bound it."""
    busiest_s: Mapping[str, float]
    """Seconds for which the busiest device computes ("compute") and of the busiest link of each tier: no step of this
    plan is shorter."""
    slow_links_s: Mapping[str, float]
    """Seconds that the step takes at least where links of a tier give the low end of their band; 0 without one."""
    bottleneck: Bottleneck
    """The resource with the most of that chain."""
    dollars_per_step: float | None
    """None without prices."""
    tasks: int
    """How many were simulated."""
    sizes_note: str = ""
    """Which compute times were not measured at their size; empty: all were."""
    step_band_s: tuple[float, float] | None = None
    """(low, high) of the step for that; None: nothing says how far."""
    engine: str
    """That made the timeline."""

    def figures(self) -> dict[str, Any]:
        """Its step, peak and fit, ready for JSON."""
        return {"step_s": self.step_s, "peak_memory_bytes": self.peak_memory_bytes, "fit": self.fit}

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings, ready for JSON."""
        plain = replace(self, devices=tuple(self.devices), links=tuple(self.links), layers=tuple(self.layers))
        return {**asdict(plain), "communication_bytes": self.communication_bytes.to_dict()}


def measure(
    model: ShardedModel, cluster: Cluster, graph: TaskGraph, timeline: Timeline, runtime: Runtime = IDEAL
) -> Report:
    """The Report of a timeline of `graph`, which `model` was lowered to for `runtime`."""
    return report_of(totals_of(model, cluster, graph, timeline), model, model.whole, cluster, runtime)


def report_of(
    totals: StepTotals, model: ShardedModel, plan: Plan, cluster: Cluster, runtime: Runtime = IDEAL
) -> Report:
    """The Report of a step of `plan` that adds up to `totals`; model: of it, or of it with fewer micro-batches."""
    profile, step_s, peaks, work = model.profile, totals.step_s, totals.peak_bytes, totals.link_work
    devices, communication = len(cluster.devices), totals.communication
    owner, compute = model.represented(devices), totals.compute_s
    fit, verdict = memory.verdict(totals.static_bytes, cluster, peaks, broken_rule(model, runtime))
    spent = spent_s(step_s, compute > 0, totals.busy_s, totals.launch_s, totals.exposed_s)

    def uses() -> tuple[DeviceUse, ...]:
        static = {name: held[owner] for name, held in static_parts(model, cluster, runtime).items()}
        return device_rows(cluster, spent, peaks, totals.static_bytes, static, communication)

    bubble_s = spent["bubble_s"][compute > 0][: cluster.workers].tolist()
    part = -(-plan.batch_size // cluster.workers)
    one_s = one_device_s(profile, cluster, part, fmean(plan.work or (1.0,))) * plan.batch_size / part
    shares = totals.shares(work)
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
        load_balance_ratio=load_balance_ratio(compute[: cluster.workers]),
        bubble_ratio=ordered_sum(bubble_s) / (step_s * len(bubble_s)) if bubble_s else 0.0,
        communication_bytes=communication,
        peak_memory_bytes=float(peaks.max()),
        fits=fit in ("fits", "border"),
        fit=fit,
        verdict=verdict,
        devices=DeferredRows(devices, uses),
        links=DeferredRows(len(cluster.links), lambda: link_rows(cluster, totals.carried_bytes, work, step_s)),
        layers=totals.layers,
        critical_path_s=totals.critical_path_s,
        path_s={" ".join(resource): seconds for resource, seconds in shares.items()},
        busiest_s={"compute": float(compute.max(initial=0.0)), **busiest_links_s(cluster, work)},
        slow_links_s=dict(zip(cluster.tiers, totals.slow_links_s.tolist(), strict=True)),
        bottleneck=_bottleneck(shares, step_s),
        dollars_per_step=dollars_per_step(cluster, step_s),
        tasks=totals.tasks,
        sizes_note=sizes.note,
        step_band_s=sizes.band_s(step_s, computed_s),
        engine=totals.engine,
    )


def load_balance_ratio(compute_s: Floats) -> float:
    """The longest over the mean of the workers' seconds of compute, shape (workers,); 1 where nobody computes."""
    mean_s = compute_s.mean()
    return float(compute_s.max() / mean_s) if mean_s else 1.0


def broken_rule(model: ShardedModel, runtime: Runtime) -> str:
    """Which rule of the runtime the plan breaks, in words; empty where it breaks none."""
    schedule, microbatches = model.plan.schedule, model.plan.microbatches
    if schedule not in runtime.full_schedules:
        return ""
    fewest = runtime.fewest_microbatches(schedule, len(model.stages))
    if microbatches >= fewest:
        return ""
    return f"{schedule} of {len(model.stages)} stages needs {fewest} micro-batches, the step has {microbatches}"


def one_device_s(profile: Profile, cluster: Cluster, batch_size: int, work: float = 1.0) -> float:
    """The whole batch on the fastest worker alone, layer after layer, with the update; work: of the mean sample."""
    alone_s = profile.kept.get(("one_device_s", batch_size, work), lambda: _one_device_s(profile, batch_size, work))
    return alone_s / max(cluster.speeds[: cluster.workers])


def _one_device_s(profile: Profile, batch_size: int, work: float) -> float:
    factors = [1 + layer.varying_share * (work - 1) for layer in profile.layers]
    passes = [sum(shard_seconds(profile, layer, batch_size)) for layer in profile.layers]
    computed = ordered_sum(seconds * factor for seconds, factor in zip(passes, factors, strict=True))
    # as in a step, where a layer without parameters has nothing to update
    return computed + ordered_sum(layer.update_s for layer in profile.layers if layer.parameter_bytes)


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
