"""Model parallelism: contiguous layers on each device, one micro-batch, so that one device works at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from partitioners._judge.judge import Judge
from partitioners._stages.contiguous import contiguous_stages
from partitioners._stages.judged_stages import judged_stages, stage_cuts
from simulator.cluster import Cluster
from simulator.plan import Partition, StepSettings
from simulator.workload import Profile

STEP_OPTIONS: Mapping[str, object] = {}


def partition(
    profile: Profile, cluster: Cluster, step: StepSettings, *, judged: bool = True, seed: int = 0
) -> Partition:
    """The fastest simulated step of stages on at most all workers, one each, that fits into memory if any does.

    Micro-batches are not read: stages made for them are those of the strategy "pipeline".
    judged: otherwise one stage per worker, the slowest stage and transfer made as fast as they can be, unsimulated;
    that raises InputError when there are more workers than layers.
    """
    plain = []
    if not judged or cluster.workers <= len(profile.layers):
        stages = contiguous_stages(profile, cluster, microbatch_size=step.batch_size)
        plain = [Partition(placements=stages.placements(profile))]
    if not judged:
        return plain[0]
    judge = Judge(profile=profile, cluster=cluster, runtime=step.runtime, once=True)
    whole = replace(step, microbatches=None, schedule=None)
    cuts = stage_cuts(profile, cluster, whole, "dataflow", replicated=False, pipelined=False)
    best = judged_stages(judge, whole, "dataflow", cuts, plain, "model")
    return Partition(placements=best.placements)
