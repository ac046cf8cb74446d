"""Cuts into stages from which a search starts, with fewer stages and replicated ones among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from partitioners._stages.contiguous import Stages, contiguous_stages
from simulator.cluster import Cluster
from simulator.errors import ShardscopeError
from simulator.network.topologies import take
from simulator.ordered_sum import ordered_sum
from simulator.plan import Partition, Plan, StepSettings
from simulator.sweep.bounds import least_compute_s
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
    is_near: Callable[[float], bool] = lambda least_s: True,
) -> Iterator[Plan]:
    """Of each number of devices, with replicas and without, the `per_count` cuts that promise the shortest steps.

    is_near: whether a step of so many seconds is wanted; devices that compute longer than that are left out.
    """
    ways = (False, True) if replicas is None else (replicas,)
    compute_s = least_compute_s(profile, step.batch_size)
    for devices in device_counts(cluster.workers):
        part = take(cluster, devices)
        if not is_near(compute_s / ordered_sum(part.speeds[:devices])):
            continue
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


def plan_allows(plan: Plan) -> bool:
    """Whether a plan may have stages: every layer whole or by sample alone, on more than one set of devices."""
    placements = plan.placements.values()
    return all(p.degrees[1:] == (1, 1, 1) for p in placements) and len({p.device_set for p in placements}) > 1


def device_counts(workers: int) -> list[int]:
    """How many devices are tried: all of them, halves of that, and every number up to _EVERY_COUNT."""
    counts = {workers >> shift for shift in range(workers.bit_length())}
    return sorted(counts | set(range(1, min(workers, _EVERY_COUNT) + 1)), reverse=True)


def _microbatches(step: StepSettings, devices: int) -> list[int]:
    """Powers of two that divide the batch, up to 4 for each device."""
    if step.microbatches:
        return [step.microbatches]
    return [m for m in (1 << k for k in range((4 * devices).bit_length())) if step.batch_size % m == 0]
