"""A training grid as the plan of the strategy that places it."""

from __future__ import annotations

from partitioners import StrategyChoice, plan_of
from partitioners._grid_choices import grid_choice, grid_options
from simulator.cluster import Cluster
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.parameter_states import ParameterStates
from simulator.plan import OPTIMIZERS, Plan, StepSettings
from simulator.workload import Profile


def simulate_options(grid: TrainingGrid) -> str:
    """What `shardscope simulate` is told to simulate the grid."""
    states = ParameterStates(stage=grid.zero_stage, group=grid.shard_group)
    step = StepSettings(
        batch_size=grid.batch, microbatches=grid.accumulation, schedule=grid.schedule or None, states=states
    )
    return StrategyChoice(strategy=grid.strategy, step=step, own=grid_options(grid)).words


def grid_plan(grid: TrainingGrid, profile: Profile, cluster: Cluster, stack: TrainingStack) -> Plan:
    """The plan of `grid` for a card's profile. Raises InputError where its strategy cannot place it."""
    step = StepSettings(batch_size=grid.batch, optimizer_state=OPTIMIZERS[stack.optimizer], runtime=stack.runtime)
    choice = grid_choice(grid, profile, step, stack)
    return plan_of(choice.strategy, profile, cluster, choice.step, **choice.own)
