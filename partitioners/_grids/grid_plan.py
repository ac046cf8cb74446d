"""A training grid as the plan of the strategy that places it."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

import partitioners
from simulator.cluster import Cluster
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.parameter_states import ParameterStates
from simulator.plan import OPTIMIZERS, Plan, StepSettings
from simulator.workload import Profile


def grid_options(grid: TrainingGrid) -> dict[str, Any]:
    """What the strategy of `grid` is asked for, beside the step."""
    again = {"recomputation": grid.recomputation} if grid.recomputation != "none" else {}
    if grid.strategy != "megatron":
        return again
    names = ("tensor", "pipeline", "context", "expert", "chunks")
    degrees = {name: getattr(grid, name) for name in names if getattr(grid, name) > 1}
    copied = {"sequence_parallel": False} if grid.tensor > 1 and not grid.sequence_parallel else {}
    return {**degrees, **copied, **again, **({"layout": grid.layout} if grid.layout else {})}


def simulate_options(grid: TrainingGrid) -> str:
    """What `shardscope simulate` is told to simulate the grid."""
    own = (f"--set {quote(f'{name}={value}')}" for name, value in grid_options(grid).items())
    words = [f"--strategy {grid.strategy}", *own, f"--zero {grid.zero_stage}" if grid.zero_stage else ""]
    words += [f"--shard-group {grid.shard_group}" if grid.shard_group else ""]
    words += [f"--microbatches {grid.accumulation}", f"--batch-size {grid.batch}"]
    return " ".join(filter(None, words))


def grid_settings(grid: TrainingGrid, profile: Profile, stack: TrainingStack) -> StepSettings:
    """The step of `grid` as the runtime of `stack` takes it."""
    asked = StepSettings(
        batch_size=grid.batch,
        microbatches=grid.accumulation,
        states=ParameterStates(group=grid.shard_group),
        optimizer_state=OPTIMIZERS[stack.optimizer],
        runtime=stack.runtime,
    )
    return stack.step(asked, profile, grid.zero_stage)


def grid_plan(grid: TrainingGrid, profile: Profile, cluster: Cluster, stack: TrainingStack) -> Plan:
    """The plan of `grid` for a card's profile. Raises InputError where its strategy cannot place it."""
    options: Mapping[str, Any] = grid_options(grid)
    return partitioners.plan_of(grid.strategy, profile, cluster, grid_settings(grid, profile, stack), seed=0, **options)
