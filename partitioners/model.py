"""Model parallelism: contiguous layers on each device, one micro-batch, so that one device works at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from partitioners._contiguous import contiguous_stages
from partitioners._judge import Judge
from partitioners._stage_cuts import judged_stages
from simulator.cluster import Cluster
from simulator.plan import Partition, StepSettings
from simulator.workload import Profile

STEP_OPTIONS: Mapping[str, object] = {}


def partition(
    profile: Profile, cluster: Cluster, step: StepSettings, *, judged: bool = False, seed: int = 0
) -> Partition:
    """One stage per worker, the slowest stage and transfer made as fast as they can be.

    Micro-batches are not read: stages made for them are those of the strategy "pipeline".
    judged: instead simulate the best cuts over all workers and over fewer, and keep the best.
    Raises InputError when there are more workers than layers.
    """
    if judged:
        judge = Judge(profile=profile, cluster=cluster, runtime=step.runtime)
        return judged_stages(judge, replace(step, microbatches=1), replicas=False, pipelined=False)
    stages = contiguous_stages(profile, cluster, microbatch_size=step.batch_size)
    return Partition(placements=stages.placements(profile))
