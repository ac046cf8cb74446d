"""A training grid as the plan of the strategy that places it."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

import partitioners
from partitioners._grid_choices import grid_options, grid_settings
from simulator.cluster import Cluster
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.plan import Plan
from simulator.workload import Profile


def simulate_options(grid: TrainingGrid) -> str:
    """What `shardscope simulate` is told to simulate the grid."""
    own = (f"--set {quote(f'{name}={value}')}" for name, value in grid_options(grid).items())
    words = [f"--strategy {grid.strategy}", *own, f"--zero {grid.zero_stage}" if grid.zero_stage else ""]
    words += [f"--shard-group {grid.shard_group}" if grid.shard_group else ""]
    words += [f"--microbatches {grid.accumulation}", f"--batch-size {grid.batch}"]
    return " ".join(filter(None, words))


def grid_plan(grid: TrainingGrid, profile: Profile, cluster: Cluster, stack: TrainingStack) -> Plan:
    """The plan of `grid` for a card's profile. Raises InputError where its strategy cannot place it."""
    options: Mapping[str, Any] = grid_options(grid)
    return partitioners.plan_of(grid.strategy, profile, cluster, grid_settings(grid, profile, stack), seed=0, **options)
