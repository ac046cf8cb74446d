"""Which grids of data, tensor, context, pipeline and expert parallelism there are to try, and how a strategy has each.

A network is cut as its layers allow: by the heads, the sequence and the blocks of its attentions and by its experts,
one without attention into stages by its layers, of a card and of a measured profile alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from partitioners import StrategyChoice
from partitioners._stages.block_layout import is_attention, query_heads
from simulator.cluster import Cluster
from simulator.language_models.grids import Divisible, candidate_grids
from simulator.language_models.modelled_profile import MOST_MICROBATCH
from simulator.language_models.training_grid import RECOMPUTATION, TrainingGrid
from simulator.language_models.training_stack import TrainingStack, stack_of
from simulator.plan import StepSettings
from simulator.workload import Profile

MOST_UNEQUAL = 16
"""Micro-batches that are tried where devices do not divide the batch."""


def divisible(profile: Profile) -> Divisible:
    """What the layers of a profile can be cut by."""
    attentions = [
        layer
        for layer in profile.layers
        if is_attention(layer) and (layer.geometry.groups > 1 or layer.geometry.aligned_inputs)
    ]
    experts = min((layer.routing.experts for layer in profile.layers if layer.routing), default=0)
    if not attentions:
        return Divisible(heads=0, key_heads=0, sequence=1, layers=len(profile.layers), experts=experts)
    first, heads = attentions[0], query_heads(profile, attentions[0])
    return Divisible(
        heads=heads,
        key_heads=first.geometry.groups,
        sequence=first.output_shape[1],
        layers=len(attentions),
        experts=experts,
    )


def grid_choices(strategy: str, profile: Profile, cluster: Cluster, step: StepSettings) -> Iterator[StrategyChoice]:
    """The grids that `strategy` places, for the step; what it says of micro-batches and states holds."""
    most = MOST_MICROBATCH if stack_of(profile) else step.batch_size
    node = cluster.devices_per_host
    for grid in candidate_grids(divisible(profile), cluster.workers, step.batch_size, node, (strategy,), most):
        if step.microbatches in (None, grid.accumulation) and step.states.stage in (0, grid.zero_stage):
            yield grid_choice(grid, profile, step)


def unequal_choices(strategy: str, cluster: Cluster, step: StepSettings, **own: Any) -> Iterator[StrategyChoice]:
    """Of a strategy whose devices do not divide the batch, by micro-batches with a sample for each device."""
    counts = range(1, MOST_UNEQUAL + 1) if step.microbatches is None else [step.microbatches]
    for count in counts:
        if step.batch_size % count == 0 and (step.microbatches or step.batch_size // count >= cluster.workers):
            yield StrategyChoice(strategy=strategy, step=replace(step, microbatches=count), own=own)


def grid_choice(
    grid: TrainingGrid, profile: Profile, step: StepSettings, stack: TrainingStack | None = None
) -> StrategyChoice:
    """A grid as a choice of its strategy; `stack`, or that of a modelled profile, says how states are shared."""
    stack, states = stack or stack_of(profile), replace(step.states, group=grid.shard_group or step.states.group)
    asked = replace(step, microbatches=grid.accumulation, schedule=grid.schedule or step.schedule, states=states)
    if stack is not None:
        asked = stack.step(asked, profile, grid.zero_stage)
    else:
        asked = replace(asked, states=replace(states, stage=grid.zero_stage))
    return StrategyChoice(strategy=grid.strategy, step=asked, own=grid_options(grid), grid=grid)


def recomputing_more(choice: StrategyChoice) -> StrategyChoice | None:
    """The same grid with more recomputation, None where there is none or the step says what is computed again."""
    grid = choice.grid
    if grid is None or choice.step.recompute or grid.recomputation == RECOMPUTATION[-1]:
        return None
    more = replace(grid, recomputation=RECOMPUTATION[RECOMPUTATION.index(grid.recomputation) + 1])
    return StrategyChoice(strategy=more.strategy, step=choice.step, own=grid_options(more), grid=more)


def grid_options(grid: TrainingGrid) -> dict[str, Any]:
    """What the strategy of `grid` is asked for, beside the step."""
    again = {"recomputation": grid.recomputation} if grid.recomputation != "none" else {}
    if grid.strategy != "megatron":
        return again
    names = ("tensor", "pipeline", "context", "expert", "chunks")
    degrees = {name: getattr(grid, name) for name in names if getattr(grid, name) > 1}
    degrees |= {"expert_tensor": 1} if grid.whole_experts and grid.expert > 1 else {}
    copied = {"sequence_parallel": False} if grid.tensor > 1 and not grid.sequence_parallel else {}
    return {**degrees, **copied, **again, **({"layout": grid.layout} if grid.layout else {})}
