"""Peak memory of a grid by kind, and whether it fits: parameters, states, activations in flight, logits, buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.memory_fit import BORDER, Fit
from simulator.transformers.accelerators import accelerator
from simulator.transformers.block import block_operators
from simulator.transformers.model_card import ModelCard
from simulator.transformers.stage_split import StageBlocks
from simulator.transformers.stage_time import BlockSeconds, block_seconds
from simulator.transformers.step_time import split_stages
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants, TrainingStack

MASTER_BYTES = 12
"""Of Adam per parameter: fp32 weight and two moments; ZeRO-1 shares them."""
SUM_BYTES, WEIGHT_BYTES = 4, 2
"""fp32 sum of gradients and bf16 weight, on every replica."""
NO_RUN_AHEAD_TENSOR = 32
"""From this tensor degree the steps at hand show no gathered inputs kept: the collectives' latency keeps host and GPU
together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes of one device of a stage at the peak of its step.

    kept_gathers: inputs of column-parallel matrices that stay allocated because the host has launched further than the
    GPU has come; the allocator gives them back when memory runs out.
    """

    parameters: Any
    activations: Any
    logits: Any
    buffers: Any
    kept_gathers: Any

    @property
    def needed(self) -> Any:
        return self.parameters + self.activations + self.logits + self.buffers

    def peak(self, constants: StackConstants) -> Any:
        """What the allocator reports: kept gathers on top, as far as they are not reclaimed."""
        return np.minimum(self.needed + self.kept_gathers, np.maximum(self.needed, constants.reclaimed_bytes))

    def pressing(self, constants: StackConstants) -> Any:
        """What decides whether allocations succeed: kept gathers fragment the memory, so part of them counts."""
        return self.needed + constants.border_share * np.minimum(self.kept_gathers, 40 * 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """Whether a grid runs, and why not. retried: stages that run, if at all, with their allocations retried."""

    fit: Fit
    reason: str = ""
    retried: tuple[bool, ...] = ()


def stage_memory(
    stage: StageBlocks,
    index: int,
    saved_bytes: float,
    kept_share: Any,
    card: ModelCard,
    grid: TrainingGrid,
    constants: StackConstants,
) -> StageMemory:
    """Of the `index`-th stage, whose blocks keep saved_bytes of a micro-batch and kept_share of gathered inputs."""
    tokens, tensor = grid.microbatch * card.sequence, grid.tensor
    in_flight = min(grid.accumulation, grid.pipeline - index)
    owners = grid.data if grid.zero_stage else 1
    per_parameter = WEIGHT_BYTES + SUM_BYTES + MASTER_BYTES / owners + constants.gradient_bytes
    per_parameter = per_parameter + (constants.bucket_bytes if grid.data > 1 else 0.0)
    logits = tokens * card.vocabulary / tensor if stage.head else 0.0
    working = constants.working_hidden_bytes * card.hidden + constants.working_ffn_bytes * card.ffn / tensor
    gathered = 4.0 * tokens * card.hidden * stage.blocks * in_flight * kept_share
    return StageMemory(
        parameters=stage.parameters(card, tensor) * per_parameter,
        activations=constants.saved_factor * saved_bytes * stage.blocks * in_flight,
        # the next micro-batch starts while the last one's fp32 logits are still held
        logits=logits * (constants.logit_bytes + (4.0 if grid.accumulation > 1 else 0.0)),
        buffers=constants.base_bytes + tokens * working,
        kept_gathers=gathered,
    )


def _kept_share(block: BlockSeconds, grid: TrainingGrid, constants: StackConstants) -> Any:
    if grid.tensor == 1:
        return 0.0
    waiting = constants.gathered_waiting_factor if grid.pipeline >= 4 else 0.0
    ahead = block.runs_ahead() & (grid.tensor < NO_RUN_AHEAD_TENSOR)
    return np.where(ahead, constants.gathered_factor, waiting)


def stage_memories(
    card: ModelCard, grid: TrainingGrid, stack: TrainingStack, constants: StackConstants | None = None
) -> tuple[StageMemory, ...]:
    """Of every stage, first to last; with other `constants` of memory than the stack's where some are named."""
    used, tokens = constants or stack.constants, grid.microbatch * card.sequence
    block = block_seconds(card, grid, accelerator(stack.accelerator), stack.constants)
    operators = block_operators(card, tokens, grid.tensor, fused_activation=stack.fused_activation)
    saved_bytes, kept = sum(operator.saved_bytes for operator in operators), _kept_share(block, grid, used)
    return tuple(
        stage_memory(stage, index, saved_bytes, kept, card, grid, used)
        for index, stage in enumerate(split_stages(card, grid, stack))
    )


def verdict(
    card: ModelCard, grid: TrainingGrid, stack: TrainingStack, memories: tuple[StageMemory, ...]
) -> MemoryVerdict:
    """Whether `grid` runs on devices of the stack's accelerator, and if not, why not."""
    if stack.waits_for_all and grid.accumulation < grid.pipeline - 1:
        reason = (
            f"1F1B of {stack.name} needs at least {grid.pipeline - 1} micro-batches, the step has {grid.accumulation}"
        )
        return MemoryVerdict(fit="breaks a rule", reason=reason)
    if grid.pipeline > card.layers + 2:
        return MemoryVerdict(
            fit="breaks a rule", reason=f"{grid.pipeline} stages are more than {card.layers} + 2 blocks"
        )
    if grid.data > 1 and sum(stage.blocks == 0 for stage in split_stages(card, grid, stack)[:-1]) > 1:
        reason = f"{grid.pipeline} stages leave several without parameters, which replicas refuse"
        return MemoryVerdict(fit="breaks a rule", reason=reason)
    capacity, limit = accelerator(stack.accelerator).memory_bytes, stack.constants.border_bytes
    pressing = [float(memory.pressing(stack.constants)) for memory in memories]
    retried = tuple(size > limit for size in pressing)
    worst = max(range(len(memories)), key=pressing.__getitem__)
    reason = (
        f"stage {worst + 1} of {len(memories)} needs {float(memories[worst].needed) / 2**30:.1f} GiB of "
        f"{capacity / 2**30:.0f}, {pressing[worst] / 2**30:.1f} with what fragmentation takes"
    )
    if any(retried):
        return MemoryVerdict(fit="does not fit", reason=reason, retried=retried)
    near = pressing[worst] > BORDER * limit
    return MemoryVerdict(fit="border" if near else "fits", reason=reason, retried=retried)
