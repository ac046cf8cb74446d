"""Cuts into stages from which a search starts, with fewer stages and replicated ones among them."""

from __future__ import annotations

from collections.abc import Iterator

from partitioners._contiguous import Stages, contiguous_stages
from simulator.cluster import Cluster
from simulator.errors import ShardscopeError
from simulator.network.topologies import take
from simulator.plan import Partition, Plan, StepSettings
from simulator.workload import Profile

SCHEDULES = ("1f1b", "gpipe", "dataflow")
_EVERY_COUNT = 8
"""Up to here every number of devices is tried, beyond only its halves."""


def stage_plans(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    replicas: bool | None = None,
    pipelined: bool = True,
    per_count: int = 2,
) -> Iterator[Plan]:
    """Of each number of devices, with replicas and without, the `per_count` cuts that promise the shortest steps."""
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
