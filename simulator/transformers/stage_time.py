"""Seconds of a stage for one micro-batch: what the GPU needs, or the host to launch it, whichever is longer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.transformers.accelerators import Accelerator
from simulator.transformers.block import (
    ACCUMULATION_TRAFFIC,
    ELEMENT_BYTES,
    BlockOperator,
    block_operators,
    head_operator,
)
from simulator.transformers.model_card import ModelCard
from simulator.transformers.stage_split import StageBlocks
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants

BACKWARD_SHARE = 2 / 3
"""Of a pass forward and backward: matrix products take twice as long backward as forward."""
EXPOSED_COLLECTIVES, HIDDEN_COLLECTIVES = 6, 4
"""Of the 10 all-gathers and reduce-scatters of a block with sequence parallelism: 4 forward and the gathers of output
gradients of its two row-parallel matrices stand alone; backward, the second gather of the inputs of the column-parallel
ones and the scatter of their gradients run beside a matrix product each."""
EMBEDDING_TRAFFIC = 20
"""Bytes per token and hidden channel: rows read and written forward, gradients read, sorted and added backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSeconds:
    """One block and micro-batch, forward and backward: on the GPU, and to launch it."""

    gpu_s: Any
    host_s: Any

    @property
    def longer_s(self) -> Any:
        return np.maximum(self.gpu_s, self.host_s)

    def runs_ahead(self, margin: float = 0.9) -> Any:
        """Whether the host launches faster than the GPU computes, give or take a tenth."""
        return self.gpu_s > margin * self.host_s


def operator_seconds(operator: BlockOperator, gpu: Accelerator, constants: StackConstants) -> tuple[Any, Any]:
    """(forward, backward) seconds of one operator without launches. A third of its traffic is of forward."""
    share = constants.attention_efficiency if operator.kind == "attention" else constants.matmul_efficiency
    forward_s = operator.flops / (gpu.flops_per_s * share)
    gaps_s = operator.products * constants.matmul_gap_s
    traffic_s = operator.traffic_bytes * constants.traffic_factor / _memory_rate(gpu, constants)
    accumulation_s = operator.parameters * ACCUMULATION_TRAFFIC / _memory_rate(gpu, constants)
    backward_s = operator.backward * forward_s + 2 * gaps_s + traffic_s * BACKWARD_SHARE + accumulation_s
    return forward_s + gaps_s + traffic_s * (1 - BACKWARD_SHARE), backward_s


def block_seconds(card: ModelCard, grid: TrainingGrid, gpu: Accelerator, constants: StackConstants) -> BlockSeconds:
    """One block of `card` for one micro-batch."""
    tokens = grid.microbatch * card.sequence
    operators = tuple(block_operators(card, tokens, grid.tensor))
    compute_s = sum(sum(operator_seconds(operator, gpu, constants)) for operator in operators)
    columns = sum(operator.flops for operator in operators if operator.name in ("qkv", "gate_up"))
    hiding_s = operators_backward_s(columns, gpu, constants)
    collective_s = collective_seconds(card, grid, constants)
    hidden_s = np.maximum(0.0, HIDDEN_COLLECTIVES * collective_s - hiding_s)
    return BlockSeconds(
        gpu_s=compute_s + EXPOSED_COLLECTIVES * collective_s + hidden_s, host_s=launch_seconds(grid, constants)
    )


def operators_backward_s(flops: float, gpu: Accelerator, constants: StackConstants) -> Any:
    """Seconds of the backward products of matrices whose forward pass takes `flops`."""
    return 2 * flops / (gpu.flops_per_s * constants.matmul_efficiency)


def collective_seconds(card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> Any:
    """One all-gather or reduce-scatter of a micro-batch's hidden states over the tensor group: a ring."""
    if grid.tensor == 1:
        return 0.0
    size = grid.microbatch * card.sequence * card.hidden * ELEMENT_BYTES * (grid.tensor - 1) / grid.tensor
    if grid.tensor_nodes > 1:
        return size / constants.tensor_across_bytes_per_s + (grid.tensor - 1) * constants.tensor_across_hop_s
    return size / constants.tensor_bytes_per_s + (grid.tensor - 1) * constants.tensor_hop_s


def launch_seconds(grid: TrainingGrid, constants: StackConstants) -> Any:
    """Host seconds of one block and micro-batch.

    In a pipeline across nodes a block waits for the stalls of every member of its tensor group, so they add up.
    """
    if not grid.pipeline_crosses_nodes or grid.tensor == 1:
        return constants.launch_floor_s
    reach = grid.tensor_nodes**constants.stall_exponent
    return constants.launch_floor_s + constants.stall_s * grid.tensor * reach


def stage_seconds(
    stage: StageBlocks,
    block: BlockSeconds,
    card: ModelCard,
    grid: TrainingGrid,
    gpu: Accelerator,
    constants: StackConstants,
) -> Any:
    """Forward and backward of one micro-batch on `stage`, whose blocks take `block` each."""
    seconds = stage.blocks * block.longer_s
    if stage.embedding:
        seconds = seconds + embedding_seconds(card, grid, gpu, constants)
    if stage.head:
        seconds = seconds + np.maximum(head_seconds(card, grid, gpu, constants), block.host_s)
    return seconds


def embedding_seconds(card: ModelCard, grid: TrainingGrid, gpu: Accelerator, constants: StackConstants) -> Any:
    tokens = grid.microbatch * card.sequence
    traffic = tokens * card.hidden * EMBEDDING_TRAFFIC + ACCUMULATION_TRAFFIC * card.embedding_parameters / grid.tensor
    return traffic / _memory_rate(gpu, constants) + collective_seconds(card, grid, constants)


def head_seconds(card: ModelCard, grid: TrainingGrid, gpu: Accelerator, constants: StackConstants) -> Any:
    """The matrix that makes logits, the casts and the cross entropy, with three collectives of hidden states."""
    tokens = grid.microbatch * card.sequence
    matrix_s = sum(operator_seconds(head_operator(card, tokens, grid.tensor), gpu, constants))
    logits = tokens * card.vocabulary / grid.tensor
    loss_s = logits * constants.loss_bytes_per_logit / _memory_rate(gpu, constants)
    return matrix_s + loss_s + 3 * collective_seconds(card, grid, constants)


def _memory_rate(gpu: Accelerator, constants: StackConstants) -> Any:
    return gpu.memory_bytes_per_s * constants.memory_efficiency
