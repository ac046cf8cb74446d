"""Model parallelism: contiguous layers on each device, one micro-batch, so that one device works at a time."""

from __future__ import annotations

from collections.abc import Mapping

from partitioners._contiguous import contiguous_stages
from simulator.cluster import Cluster
from simulator.plan import Partition, StepSettings
from simulator.workload import Profile

STEP_OPTIONS: Mapping[str, object] = {}


def partition(profile: Profile, cluster: Cluster, step: StepSettings, *, seed: int = 0) -> Partition:
    """One stage per worker, the slowest stage and transfer made as fast as they can be.

    Micro-batches are not read: stages made for them are those of the strategy "pipeline".
    Raises InputError when there are more workers than layers.
    """
    stages = contiguous_stages(profile, cluster, microbatch_size=step.batch_size)
    return Partition(placements=stages.placements(profile))
