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
GATHERED_BYTES = 4.0
"""Per token and channel: the inputs of a block's two column-parallel matrices in bf16."""
LARGEST_KEPT_BYTES = 2e9
"""Gathered inputs of a block larger than this were not kept by any run at hand."""
MOST_FRAGMENTED_BYTES = 40 * 2**30
NO_WAITING_TENSOR = 32
"""From this tensor degree stages that wait for messages keep no gathered inputs: the GPU has long caught up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes of one device of a stage at the peak of its step.

    kept_gathers: inputs of column-parallel matrices that stay allocated because the host has launched further than the
    GPU has come; the allocator gives them back when memory runs out. fragmented: free, but not in one piece.
    """

    parameters: Any
    activations: Any
    logits: Any
    buffers: Any
    kept_gathers: Any
    fragmented: Any

    @property
    def needed(self) -> Any:
        return self.parameters + self.activations + self.logits + self.buffers

    def peak(self, constants: StackConstants) -> Any:
        """What the allocator reports: kept gathers on top, as far as they are not reclaimed."""
        return np.minimum(self.needed + self.kept_gathers, np.maximum(self.needed, constants.reclaimed_bytes))

    @property
    def pressing(self) -> Any:
        """What decides whether allocations succeed."""
        return self.needed + self.fragmented


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
    tokens, tensor = grid.tokens(card.sequence), grid.tensor
    in_flight = min(grid.accumulation, grid.pipeline - index)
    parameters = stage.parameters(card, tensor, grid.expert) * _state_bytes(grid, constants)
    if grid.zero_stage >= 2:  # beside its share a device has whole blocks: the one at work and the next
        parameters = parameters + 2 * stage.largest(card, tensor, grid.expert) * (WEIGHT_BYTES + SUM_BYTES)
    logits = tokens * card.vocabulary / tensor if stage.head else 0.0
    working = constants.working_hidden_bytes * card.hidden + constants.working_ffn_bytes * card.ffn / tensor
    if grid.recomputation == "full":
        working = working + saved_bytes / tokens
        saved_bytes, kept_share = 2 * tokens * card.hidden / tensor, 0.0
    gathered = GATHERED_BYTES * tokens * card.hidden
    gathers = gathered * stage.blocks * in_flight * kept_share
    return StageMemory(
        parameters=parameters,
        activations=constants.saved_factor * saved_bytes * stage.blocks * in_flight,
        # the next micro-batch starts while the last one's fp32 logits are still held
        logits=logits * (constants.logit_bytes + (4.0 if grid.accumulation > 1 else 0.0)),
        buffers=constants.base_bytes + tokens * working,
        kept_gathers=gathers if gathered <= LARGEST_KEPT_BYTES else 0.0,
        fragmented=constants.border_share * np.minimum(gathers, MOST_FRAGMENTED_BYTES),
    )


def _state_bytes(grid: TrainingGrid, constants: StackConstants) -> Any:
    """Bytes per parameter of a stage: weight, sum and optimizer state, each shared from its ZeRO stage on."""
    shared = [grid.owners if grid.zero_stage >= stage else 1 for stage in (1, 2, 3)]
    states = MASTER_BYTES / shared[0] + SUM_BYTES / shared[1] + WEIGHT_BYTES / shared[2]
    if grid.zero_stage >= 2:
        return states
    return states + constants.gradient_bytes + (constants.bucket_bytes if grid.replicas > 1 else 0.0)


def _kept_share(block: BlockSeconds, grid: TrainingGrid, constants: StackConstants) -> Any:
    if grid.tensor == 1:
        return 0.0
    waits = grid.pipeline >= 4 and grid.tensor < NO_WAITING_TENSOR
    waiting = constants.gathered_waiting_factor if waits else 0.0
    return np.where(block.runs_ahead(), constants.gathered_factor, waiting)


def stage_memories(
    card: ModelCard, grid: TrainingGrid, stack: TrainingStack, constants: StackConstants | None = None
) -> tuple[StageMemory, ...]:
    """Of every stage, first to last; with other `constants` of memory than the stack's where some are named."""
    used, tokens = constants or stack.constants, grid.tokens(card.sequence)
    block = block_seconds(card, grid, accelerator(stack.accelerator), stack.constants)
    operators = block_operators(card, tokens, grid.tensor, fused_activation=stack.fused_activation)
    saved_bytes = sum(operator.saved_bytes for operator in operators)
    kept = _kept_share(block, grid, used)
    return tuple(
        stage_memory(stage, index, saved_bytes, kept, card, grid, used)
        for index, stage in enumerate(split_stages(card, grid, stack))
    )


def leaves_stages_empty(card: ModelCard, grid: TrainingGrid, stack: TrainingStack) -> bool:
    """Whether more than one stage before the last has no block."""
    return sum(stage.blocks == 0 for stage in split_stages(card, grid, stack)[:-1]) > 1


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
    if (grid.data > 1 or grid.microbatch > 1) and leaves_stages_empty(card, grid, stack):
        reason = f"{grid.pipeline} stages leave several without parameters; all such runs at hand failed"
        return MemoryVerdict(fit="breaks a rule", reason=reason)
    capacity, limit = accelerator(stack.accelerator).memory_bytes, stack.constants.border_bytes
    pressing = [float(memory.pressing) for memory in memories]
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
