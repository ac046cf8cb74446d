"""Seconds of a training step of a decoder on a grid of GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.transformers.accelerators import accelerator
from simulator.transformers.block import ELEMENT_BYTES
from simulator.transformers.gradient_exchange import (
    exchange_seconds,
    exposed_seconds,
    gather_seconds,
    tied_seconds,
    update_seconds,
)
from simulator.transformers.model_card import ModelCard
from simulator.transformers.pipeline_time import pipeline_ends
from simulator.transformers.stage_split import StageBlocks, equal_stages, stages_by_parameters
from simulator.transformers.stage_time import BACKWARD_SHARE, BlockSeconds, block_seconds, stage_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants, TrainingStack


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """A step: passes_s of the micro-batches, then what stays exposed of the gradients' exchange, gather_s of updated
    parameters, update_s of the optimizer, other_s. bubble: share of passes_s in which the busiest stage waits.
    """

    step_s: Any
    passes_s: Any
    exposed_s: Any
    gather_s: Any
    update_s: Any
    other_s: Any
    bubble: Any
    block: BlockSeconds


def split_stages(card: ModelCard, grid: TrainingGrid, stack: TrainingStack) -> tuple[StageBlocks, ...]:
    """The stages of `grid` as the runtime of `stack` splits the network."""
    split = stages_by_parameters if stack.splits == "parameters" else equal_stages
    return split(card, grid.pipeline)


def step_seconds(
    card: ModelCard,
    grid: TrainingGrid,
    stack: TrainingStack,
    *,
    constants: StackConstants | None = None,
    retried: tuple[bool, ...] = (),
) -> StepSeconds:
    """Seconds of a step, with other `constants` than the stack's where some are named.

    retried: the stages whose allocations are retried at every micro-batch (`step_memory`).
    """
    constants, gpu = constants or stack.constants, accelerator(stack.accelerator)
    usual = stack.usual_network(grid.nodes)
    constants = replace(constants, network_bytes_per_s=constants.network_bytes_per_s * usual)
    stages = split_stages(card, grid, stack)
    block = block_seconds(card, grid, gpu, constants)
    busy = [stage_seconds(stage, block, card, grid, gpu, constants) for stage in stages]
    if any(retried):
        busy = [
            replace(each, seconds=each.seconds + constants.retry_s * retry)
            for each, retry in zip(busy, retried, strict=True)
        ]
    backward = [each.seconds * BACKWARD_SHARE for each in busy]
    forward = [each.seconds * (1 - BACKWARD_SHARE) for each in busy]
    hops = [hop_seconds(card, grid, constants)] * (grid.pipeline - 1)
    stalls = [each.stall_s for each in busy]
    ends = pipeline_ends(forward, backward, hops, grid.accumulation, stalls=stalls)
    exchanges = [exchange_seconds(_left_to_sum(stage, grid), card, grid, constants) for stage in stages]
    exposed = [
        end + exposed_seconds(exchange, hiding_s, constants)
        for end, exchange, hiding_s in zip(ends.stages, exchanges, backward, strict=True)
    ]
    passes_s = ends.latest
    exposed_s = np.maximum.reduce(exposed) - passes_s
    busiest_s = np.maximum.reduce([each.seconds + each.stall_s for each in busy])
    largest = max(stages, key=lambda stage: stage.parameters(card, grid.tensor, grid.expert))
    gather_s = gather_seconds(largest, card, grid, constants) if grid.zero_stage < 3 else 0.0
    update_s = np.maximum.reduce([update_seconds(stage, card, grid, gpu, constants) for stage in stages])
    other_s = tied_seconds(card, grid, constants) + constants.step_overhead_s
    return StepSeconds(
        step_s=passes_s + exposed_s + gather_s + update_s + other_s,
        passes_s=passes_s, exposed_s=exposed_s, gather_s=gather_s, update_s=update_s, other_s=other_s,
        bubble=np.maximum(0.0, 1 - busiest_s * grid.accumulation / passes_s), block=block,
    )  # fmt: skip


def _left_to_sum(stage: StageBlocks, grid: TrainingGrid) -> StageBlocks:
    """What of a stage's gradients is summed behind the last micro-batch: where every block's are scattered at once,
    those of its first block and its tables."""
    return replace(stage, blocks=min(stage.blocks, 1)) if grid.zero_stage >= 2 else stage


def hop_seconds(card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Of one micro-batch's hidden states from a stage to the next, each tensor rank its slice of the sequence."""
    size = grid.tokens(card.sequence) * card.hidden * ELEMENT_BYTES / grid.tensor
    inside = grid.replicas * grid.tensor < grid.node_devices
    return size / (constants.tensor_bytes_per_s if inside else constants.network_bytes_per_s)
