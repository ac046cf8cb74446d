"""Cuts into stages that are worth simulating, with fewer stages and replicated ones among them.

Which cuts a strategy judges depends on how many devices a cut uses, not on how many there are, and they are made for
links of several bandwidths, not for those at hand: with more devices or faster links the cuts of before are among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from partitioners._contiguous import Stages, contiguous_stages
from partitioners._judge import Judge
from simulator.cluster import Cluster
from simulator.errors import InputError, ShardscopeError
from simulator.network.topologies import take
from simulator.plan import Partition, Plan, StepSettings
from simulator.workload import Profile

SCHEDULES = ("1f1b", "gpipe", "dataflow")
_ASSUMED_BYTES_PER_S = (1e8, 1e9, 1e10, 1e11)
"""Of the links for which cuts are made that are then simulated on those at hand."""
_EVERY_COUNT = 8
"""Up to here every number of devices is tried, beyond only its halves."""


def judged_stages(judge: Judge, step: StepSettings, *, replicas: bool | None, pipelined: bool) -> Partition:
    """The stages of the shortest simulated step over at most all workers of the judge's cluster.

    replicas: whether stages have them, None for whatever is faster. pipelined: with micro-batches and a schedule, those
    of the step where it says; otherwise one micro-batch. Raises InputError where no cut can be made.
    """
    considered: list[Plan] = []
    for cluster in _with_assumed_links(judge.cluster):
        for plan in stage_plans(judge.profile, cluster, step, replicas=replicas, pipelined=pipelined, per_count=1):
            if plan not in considered:
                considered.append(plan)
                judge.consider(plan, "a cut into stages")
    if judge.best is None:
        raise InputError(f"devices: {judge.profile.model!r} has no cut into stages for {judge.cluster.workers} devices")
    best = judge.best.plan
    if not pipelined:
        return Partition(placements=best.placements)
    return Partition(placements=best.placements, microbatches=best.microbatches, schedule=best.schedule)


def _with_assumed_links(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with all links of one bandwidth, of several in turn; itself where it has none."""
    if not cluster.links:
        yield cluster
        return
    for bandwidth in _ASSUMED_BYTES_PER_S:
        assumed = cluster
        for tier in cluster.tiers:
            assumed = assumed.with_tier(tier, bandwidth_bytes_per_s=bandwidth)
        yield assumed


def stage_plans(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    replicas: bool | None = None,
    pipelined: bool = True,
    most_s: float = inf,
    per_count: int = 2,
) -> Iterator[Plan]:
    """Of each number of devices, with replicas and without, the `per_count` cuts that promise the shortest steps.

    None that promises more than most_s.
    """
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
            for _, m, stages in sorted(cuts, key=lambda cut: cut[:2])[:per_count]:
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
