"""The answer of a step first: how long, how sure, whether it fits, what limits it, what would help most, its price."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING

from simulator.errors import InputError
from simulator.units import format_bytes, format_time

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.engine.noise import Noise
    from simulator.plan import Plan
    from simulator.report.interval import StepInterval
    from simulator.report.metrics import Report
    from simulator.runtime import Runtime
    from simulator.workload import Profile

MANY = 1000
"""A rate from which on it is whole."""
LEAST_GAIN = 1.005
"""A change below it is none."""
LAUNCHED = "larger micro-batches or CUDA graphs, as the host is slow to launch"
SMALLER = "more devices, a smaller --batch-size, or a strategy that cuts layers"
MOST_TASKS = 2_000_000
"""Of a step that is simulated again and again until it fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """What a price is of."""

    name: str
    """"tokens" of a language model from a card, else "samples"."""
    per_sample: int
    """How many of them a sample is."""


def priced(profile: Profile) -> Priced:
    """Tokens for a profile that was modelled from a card, whose layers are a sequence high."""
    from simulator.language_models.training_stack import stack_of

    if stack_of(profile) is None:
        return Priced(name="samples", per_sample=1)
    return Priced(name="tokens", per_sample=profile.layers[0].output_shape[1])


def answer(report: Report, cluster: Cluster, interval: StepInterval, change: str, of: Priced) -> Iterator[str]:
    """The lines that a reader came for; change: the best one, see `best_change`; of: what prices are per million of."""
    rate = report.samples_per_s * of.per_sample
    step, varied = format_time(report.step_s), format_time(interval.middle_s)
    varied = f" ({varied} as devices vary)" if varied != step else ""
    yield f"step {step}{varied}, {sure_of(interval)}; {rate:,.{1 if rate < MANY else 0}f} {of.name}/s"
    yield fit_words(report, cluster)
    yield f"limited by {report.bottleneck}"
    yield f"best change: {change}"
    if report.dollars_per_step is not None:
        million = dollars_per_million(report, of)
        yield f"cost: {dollars(report.dollars_per_step)} a step, {dollars(million)} per million {of.name}"


def sure_of(interval: StepInterval) -> str:
    """The seconds between which the actual step lies with 9 in 10 certainty, as far as anything is known of it."""
    if not interval.parts:
        return "its uncertainty is not known"
    return f"90% sure of {within(interval)}"


def within(interval: StepInterval) -> str:
    """An interval's two ends."""
    return f"{format_time(interval.low_s)} to {format_time(interval.high_s)}"


def fit_words(report: Report, cluster: Cluster) -> str:
    """Whether it fits, with the device that is closest to its limit."""
    if report.verdict:
        return report.verdict
    limited = [device for device in report.devices if device.memory_bytes]
    if not limited:
        return f"fits: needs {format_bytes(report.peak_memory_bytes)}; {cluster.name} states no memory"
    fullest = max(limited, key=lambda device: device.peak_memory_bytes / (device.memory_bytes or 1))
    return f"fits: needs {format_bytes(fullest.peak_memory_bytes)} of {format_bytes(fullest.memory_bytes or 0)}"


def dollars_per_million(report: Report, of: Priced) -> float:
    """Of a report with prices."""
    return (report.dollars_per_step or 0.0) * 1e6 / (report.batch_size * of.per_sample)


def dollars(amount: float) -> str:
    """An amount with at least three digits that count."""
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.3g}"


def best_change(
    profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime, report: Report, noise: Noise | None = None
) -> str:
    """What helps this step most: that it fits, else devices, or the resource that binds it, twice as fast; noise: that
    of the report, if any."""
    from simulator.plan_rules import COMBINED, may_hide_experts
    from simulator.report.critical_path import LAUNCHES
    from simulator.run import step_report, step_seconds
    from simulator.studies.what_if import gains_of

    if not report.fits:
        return fitting_change(profile, cluster, plan, runtime, whole=report.tasks <= MOST_TASKS)
    limit = report.bottleneck.resource
    if limit == LAUNCHES:
        return LAUNCHED

    def step_s(changed: Cluster) -> float:
        if noise:
            return step_report(profile, changed, plan, runtime=runtime, noise=noise).step_s
        return report.step_s if changed is cluster else step_seconds(profile, changed, plan, runtime)

    if may_hide_experts(profile, plan) and not noise:
        joined_s = step_seconds(profile, cluster, replace(plan, schedule=COMBINED), runtime)
        if report.step_s >= LEAST_GAIN * joined_s:
            return f"--schedule {COMBINED} (Megatron-LM's) would make it {report.step_s / joined_s:.2f}x faster"
    gain = max(gains_of(step_s, cluster, {limit, "compute"}), key=lambda gain: gain.speedup)
    if gain.speedup < LEAST_GAIN:
        return "none found: neither faster devices nor better links shorten it"
    return f"{gain.change} would make it {gain.speedup:.2f}x faster"


def fitting_change(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime, whole: bool) -> str:
    """The first of the usual changes, by simulation, with which a step fits that does not; whole: with all of its
    micro-batches, else with as many as its pipeline holds, where more of them hold no more."""
    from simulator.run import step_report

    def report(changed: Plan, rounds: int) -> Report:
        count = min(changed.microbatches, rounds * depth)
        part = replace(changed, microbatches=count, batch_size=changed.microbatch_size * count)
        return step_report(profile, cluster, changed if whole else part, runtime=runtime)

    depth = len({sharding.device_set for sharding in plan.placements.values()})
    for options, changed in _smaller(profile, plan, depth, runtime):
        with suppress(InputError):
            smaller = report(changed, 3)
            if smaller.fit != "fits":
                continue
            if whole:
                return f"{options} ({format_bytes(smaller.peak_memory_bytes)}, step {format_time(smaller.step_s)})"
            if report(changed, 4).peak_memory_bytes == smaller.peak_memory_bytes:
                return f"{options} ({format_bytes(smaller.peak_memory_bytes)})"
    return SMALLER


def _smaller(profile: Profile, plan: Plan, depth: int, runtime: Runtime) -> Iterator[tuple[str, Plan]]:
    """A plan that needs less and less memory: states shared out, smaller micro-batches, recomputation, all of it.

    Stages share out what an update reads alone: parameters would be gathered for every micro-batch.
    """
    stage, options = 1 if depth > 1 else 3, ""
    recomputing, again = _recomputing(profile, plan, runtime)
    smaller, counts = replace(plan, recomputed=again), [plan.microbatches << doubled for doubled in range(1, 5)]
    counts = [count for count in counts if plan.batch_size % count == 0]
    if plan.states.stage < stage and len(plan.devices) > 1:
        options = f"--zero {stage} "
        yield options.strip(), _sharing(profile, plan, stage)
    yield from ((f"--microbatches {count}", replace(plan, microbatches=count)) for count in counts)
    yield recomputing, smaller
    if options:
        smaller = _sharing(profile, smaller, stage)
        yield f"{options}{recomputing}", smaller
    for count in counts:
        yield f"{options}{recomputing} --microbatches {count}", replace(smaller, microbatches=count)


def _sharing(profile: Profile, plan: Plan, stage: int) -> Plan:
    """The plan with the states of another stage shared out, as a modelled profile's stack does that."""
    from simulator.language_models.training_stack import stack_of
    from simulator.plan import StepSettings, Synchronisation

    shared, stack = replace(plan, states=replace(plan.states, stage=stage)), stack_of(profile)
    if stack is None:
        return shared
    usual = Synchronisation()
    free = replace(plan.synchronisation, bucket_bytes=usual.bucket_bytes, bucket_bytes_per_device=0)
    asked = StepSettings(batch_size=plan.batch_size, states=shared.states, synchronisation=free)
    step = stack.step(asked, profile, stage)
    return replace(shared, states=step.states, synchronisation=step.synchronisation)


def _recomputing(profile: Profile, plan: Plan, runtime: Runtime) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The option that has all recomputed, and the segments: blocks, where the plan's strategy names them."""
    import partitioners
    from partitioners._stages.block_layout import separable_units
    from partitioners._stages.recomputed_layers import recomputed_segments
    from simulator.recompute_segments import recompute_segments, stopped_early

    option, segments = "--set recomputation=full", recomputed_segments(profile, separable_units(profile), "full")
    if plan.strategy not in partitioners.strategies() or "recomputation" not in partitioners.options(plan.strategy):
        count = str(isqrt(len(profile.layers)))
        device_sets = {name: sharding.device_set for name, sharding in plan.placements.items()}
        option, segments = f"--recompute {count}", recompute_segments(profile, device_sets, count)
    return option, stopped_early(profile, segments) if runtime.stops_recomputation else segments
