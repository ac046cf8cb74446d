"""Fully sharded data parallelism: replicas of the whole network, which share out the states that the step names.

What they share, and in groups of how many (hybrid), are the step's ParameterStates; here stand the placements and what
is recomputed. Without states it is data parallelism.
"""

from __future__ import annotations

from partitioners.data import partition as replicated
from partitioners.megatron import separable_units
from simulator.cluster import Cluster
from simulator.plan import Partition, StepSettings
from simulator.workload import Profile


def partition(
    profile: Profile, cluster: Cluster, step: StepSettings, *, recompute: bool = False, seed: int = 0
) -> Partition:
    """Every layer by sample over all workers; with `recompute` each block is computed again before its backward pass.

    A block is what lies between two layers where one tensor alone crosses. Raises InputError as data parallelism does.
    """
    names = [layer.name for layer in profile.layers]
    blocks = (tuple(names[i] for i in unit) for unit in separable_units(profile) if len(unit) > 1)
    placements = replicated(profile, cluster, step, balance=False).placements
    return Partition(placements=placements, recomputed=tuple(blocks) if recompute else ())
