"""Fully sharded data parallelism: replicas of the whole network, which share out the states that the step names.

They share out parameters, gradients and optimizer state, all of them or in groups (hybrid), unless the step says which
states are shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from partitioners import StrategyChoice
from partitioners._grid_choices import grid_choices, unequal_choices
from partitioners._stages.block_layout import separable_units
from partitioners._stages.recomputed_layers import recomputed_segments
from partitioners.data import STEP_OPTIONS as STEP_OPTIONS
from partitioners.data import partition as replicated
from simulator.cluster import Cluster
from simulator.parameter_states import ParameterStates
from simulator.plan import Partition, StepSettings
from simulator.workload import Profile

ZERO_STAGE = 3
"""Of the states that replicas share out where the step names none."""


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    group: int = 0,
    recomputation: str = "none",
    seed: int = 0,
) -> Partition:
    """Every layer by sample over all workers.

    group: so many consecutive workers share states (0: all). recomputation: see `_stages.recomputed_layers`. Raises
    InputError as data parallelism does, and where there is no such recomputation.
    """
    units = separable_units(profile)
    segments = recomputed_segments(profile, units, recomputation)
    states = ParameterStates(stage=ZERO_STAGE, group=group)
    replicas = replicated(profile, cluster, step, balance=False)
    return replace(replicas, schedule="sequential", recomputed=segments, states=states)


def choices(profile: Profile, cluster: Cluster, step: StepSettings) -> Iterator[StrategyChoice]:
    """Gradients shared, and parameters too, by micro-batches."""
    grids, node = list(grid_choices("fsdp", profile, cluster, step)), cluster.devices_per_host
    yield from grids or unequal_choices("fsdp", cluster, step)
    if not grids and 1 < node < cluster.workers and cluster.workers % node == 0 and not step.states.group:
        yield from unequal_choices("fsdp", cluster, step, group=node)
