"""Cuts into stages that are worth simulating, with fewer stages and replicated ones among them.

Which cuts stand here depends on how many devices a cut uses, not on how many there are, so that with more devices the
best of those simulated is never slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from partitioners._contiguous import Stages, contiguous_stages
from partitioners._judge import Judge
from simulator.cluster import Cluster
from simulator.errors import InputError, ShardscopeError
from simulator.network.topologies import take
from simulator.plan import Partition, Plan, StepSettings
from simulator.workload import Profile

SCHEDULES = ("1f1b", "gpipe", "dataflow")
_PER_COUNT = 2
"""Cuts simulated for each number of devices, of those with and of those without replicas."""
_EVERY_COUNT = 8
"""Up to here every number of devices is tried, beyond only its halves."""


def judged_stages(judge: Judge, step: StepSettings, *, replicas: bool | None, pipelined: bool) -> Partition:
    """The stages of the shortest simulated step over at most all workers of the judge's cluster.

    replicas: whether stages have them, None for whatever is faster. pipelined: with micro-batches and a schedule, those
    of the step where it says; otherwise one micro-batch. Raises InputError where no cut can be made.
    """
    for plan in stage_plans(judge.profile, judge.cluster, step, replicas=replicas, pipelined=pipelined):
        judge.consider(plan, "a cut into stages")
    if judge.best is None:
        raise InputError(f"devices: {judge.profile.model!r} has no cut into stages for {judge.cluster.workers} devices")
    if pipelined and not step.schedule:
        for schedule in SCHEDULES[1:]:
            judge.consider(replace(judge.best.plan, schedule=schedule), schedule)
    best = judge.best.plan
    if not pipelined:
        return Partition(placements=best.placements)
    return Partition(placements=best.placements, microbatches=best.microbatches, schedule=best.schedule)


def stage_plans(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    replicas: bool | None = None,
    pipelined: bool = True,
    most_s: float = inf,
) -> Iterator[Plan]:
    """Of each number of devices the cuts that promise the shortest steps, as plans; none that promises over most_s."""
    ways = (False, True) if replicas is None else (replicas,)
    for devices in device_counts(cluster.workers):
        part = take(cluster, devices)
        for replicated in ways:
            cuts: list[tuple[float, int, Stages]] = []
            for m in _microbatches(step, devices) if pipelined else [1]:
                try:
                    stages = contiguous_stages(
                        profile, part, microbatch_size=step.batch_size // m, microbatches=m, replicas=replicated
                    )
                except ShardscopeError:
                    continue
                if stages.step_s(m) <= most_s:
                    cuts.append((stages.step_s(m), m, stages))
            for _, m, stages in sorted(cuts, key=lambda cut: cut[:2])[:_PER_COUNT]:
                schedule = step.schedule or (SCHEDULES[0] if pipelined else None)
                placements = stages.placements(profile)
                yield step.plan(profile, Partition(placements=placements, microbatches=m, schedule=schedule), "stages")


def device_counts(workers: int) -> list[int]:
    """How many devices are tried: all of them, halves of that, and every number up to _EVERY_COUNT."""
    counts = {workers >> shift for shift in range(workers.bit_length())}
    return sorted(counts | set(range(1, min(workers, _EVERY_COUNT) + 1)), reverse=True)


def _microbatches(step: StepSettings, devices: int) -> list[int]:
    """Powers of two that divide the batch, up to 4 for each device."""
    if step.microbatches:
        return [step.microbatches]
    return [m for m in (1 << k for k in range((4 * devices).bit_length())) if step.batch_size % m == 0]
