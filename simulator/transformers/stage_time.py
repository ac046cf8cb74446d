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
from simulator.transformers.gradient_exchange import exchange_seconds, gather_seconds
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
FORWARD_COLLECTIVES, EXPERT_EXCHANGES = 4, 4
"""Of a block's collectives those of its forward pass; tokens go to experts and return, forward and backward."""
EMBEDDING_TRAFFIC = 20
"""Bytes per token and hidden channel: rows read and written forward, gradients read, sorted and added backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSeconds:
    """One block and micro-batch, forward and backward.

    On the GPU: compute_s, and what it waits for collectives of the tensor group, for keys and values of the context
    group, for tokens of other devices' experts, and for parameters and gradients that replicas share. host_s: to launch
    it, stall_s: how much longer that takes where the host waits for messages of both neighbouring stages in turn.
    """

    compute_s: Any
    tensor_s: Any
    context_s: Any
    expert_s: Any
    states_s: Any
    host_s: Any
    stall_s: Any

    @property
    def gpu_s(self) -> Any:
        return self.compute_s + self.tensor_s + self.context_s + self.expert_s + self.states_s

    def runs_ahead(self, margin: float = 0.9) -> Any:
        """Whether the host launches faster than the GPU computes, give or take a tenth."""
        return self.gpu_s > margin * (self.host_s + self.stall_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """One micro-batch on one stage, forward and backward: seconds, and stall_s more where the backward pass of another
    micro-batch follows its forward pass."""

    seconds: Any
    stall_s: Any


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
    """One block of `card` for one micro-batch. Recomputation runs its forward pass again, with its collectives."""
    operators = tuple(block_operators(card, grid.tokens(card.sequence), grid.tensor, expert=grid.expert))
    passes = {operator.name: operator_seconds(operator, gpu, constants) for operator in operators}
    forward_s = sum(passes[operator.name][0] for operator in operators)
    backward_s = sum(passes[operator.name][1] for operator in operators)
    columns = sum(operator.flops for operator in operators if operator.name in ("qkv", "gate_up"))
    hiding_s = operators_backward_s(columns, gpu, constants)
    collective_s = collective_seconds(card, grid, constants)
    again = grid.recomputation == "full"
    exposed = EXPOSED_COLLECTIVES + (FORWARD_COLLECTIVES if again else 0)
    hidden_s = np.maximum(0.0, HIDDEN_COLLECTIVES * collective_s - hiding_s)
    backward_s = backward_s + forward_s if again else backward_s
    return BlockSeconds(
        compute_s=forward_s + backward_s, tensor_s=exposed * collective_s + hidden_s,
        context_s=exposed_context_seconds(card, grid, passes["attention"], constants),
        expert_s=(EXPERT_EXCHANGES + (2 if again else 0)) * expert_exchange_seconds(card, grid, constants),
        states_s=exposed_state_seconds(card, grid, (forward_s, backward_s), constants),
        host_s=constants.launch_floor_s, stall_s=block_stall_seconds(grid, constants),
    )  # fmt: skip


def exposed_context_seconds(
    card: ModelCard, grid: TrainingGrid, attention: tuple[Any, Any], constants: StackConstants
) -> Any:
    """Of passing keys and values around the context group, and their gradients with them backward, beside attention.

    Ring attention (Liu et al., arXiv 2310.01889): a device computes on one part while it sends another.
    """
    if grid.context == 1:
        return 0.0
    channels = max(card.key_channels / grid.tensor, card.width)
    size = 2 * ELEMENT_BYTES * grid.tokens(card.sequence) * channels * (grid.context - 1)
    inside = grid.context * grid.tensor <= grid.node_devices
    ring_s = size / (constants.tensor_bytes_per_s if inside else constants.network_bytes_per_s)
    ring_s = ring_s + (grid.context - 1) * (constants.tensor_hop_s if inside else constants.tensor_across_hop_s)
    again = grid.recomputation == "full"
    return (1 + again) * np.maximum(0.0, ring_s - attention[0]) + np.maximum(0.0, 2 * ring_s - attention[1])


def expert_exchange_seconds(card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> Any:
    """One all-to-all of a block's tokens, each to the experts it takes, all experts with as many."""
    if grid.expert == 1 or not card.experts:
        return 0.0
    tokens = grid.tokens(card.sequence) * card.experts_per_token / grid.tensor
    size = ELEMENT_BYTES * tokens * card.hidden
    near = grid.per_node(grid.expert)
    inside_s = size * (near - 1) / grid.expert / constants.tensor_bytes_per_s
    across_s = size * (grid.expert - near) / grid.expert / (constants.network_share * constants.network_bytes_per_s)
    return np.maximum(inside_s, across_s) + (grid.expert - 1) * constants.tensor_hop_s


def exposed_state_seconds(
    card: ModelCard, grid: TrainingGrid, passes: tuple[Any, Any], constants: StackConstants
) -> Any:
    """What a block waits for shared parameters (ZeRO-3) and for its gradients to be scattered (ZeRO-2 and -3).

    Both run beside the block before or behind, at every micro-batch: a gather forward and backward, a scatter backward.
    """
    if grid.zero_stage < 2:
        return 0.0
    block = StageBlocks(blocks=1)
    forward_s = gather_seconds(block, card, grid, constants) if grid.zero_stage == 3 else 0.0
    backward_s = forward_s + exchange_seconds(block, card, grid, constants).total_s
    return np.maximum(0.0, forward_s - passes[0]) + np.maximum(0.0, backward_s - passes[1])


def operators_backward_s(flops: float, gpu: Accelerator, constants: StackConstants) -> Any:
    """Seconds of the backward products of matrices whose forward pass takes `flops`."""
    return 2 * flops / (gpu.flops_per_s * constants.matmul_efficiency)


def collective_seconds(card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> Any:
    """One all-gather or reduce-scatter of a micro-batch's hidden states over the tensor group: a ring."""
    if grid.tensor == 1:
        return 0.0
    size = grid.tokens(card.sequence) * card.hidden * ELEMENT_BYTES * (grid.tensor - 1) / grid.tensor
    if grid.tensor_nodes > 1:
        return size / constants.tensor_across_bytes_per_s + (grid.tensor - 1) * constants.tensor_across_hop_s
    return size / constants.tensor_bytes_per_s + (grid.tensor - 1) * constants.tensor_hop_s


def block_stall_seconds(grid: TrainingGrid, constants: StackConstants) -> Any:
    """Added to the launches of one block and micro-batch in a pipeline across nodes.

    A block waits for the stalls of every member of its tensor group, so they add up; whole replicas (ZeRO-0) on other
    nodes stall it further.
    """
    if not grid.pipeline_crosses_nodes:
        return 0.0
    members = grid.tensor * grid.tensor_nodes**constants.stall_exponent
    shared = constants.replica_stall_share if grid.data_crosses_nodes and not grid.zero_stage else 0.0
    return constants.stall_s * members * ((grid.tensor > 1) + shared)


def stage_seconds(
    stage: StageBlocks,
    block: BlockSeconds,
    card: ModelCard,
    grid: TrainingGrid,
    gpu: Accelerator,
    constants: StackConstants,
) -> StageSeconds:
    """Forward and backward of one micro-batch on `stage`, whose blocks take `block` each.

    Launches run ahead of the GPU from block to block, so a stage takes the longer of the two sums.
    """
    gpu_s, host_s = stage.blocks * block.gpu_s, stage.blocks * block.host_s
    if stage.embedding:
        gpu_s = gpu_s + embedding_seconds(card, grid, gpu, constants)
    if stage.head:
        gpu_s, host_s = gpu_s + head_seconds(card, grid, gpu, constants), host_s + block.host_s
    seconds = np.maximum(gpu_s, host_s)
    stalled_s = np.maximum(gpu_s, host_s + stage.blocks * block.stall_s)
    return StageSeconds(seconds=seconds, stall_s=stalled_s - seconds + message_stall_seconds(stage, grid, constants))


def message_stall_seconds(stage: StageBlocks, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Of a micro-batch's messages with the stages before and behind, where a tensor group reaches over nodes."""
    if not grid.pipeline_crosses_nodes or grid.tensor == 1:
        return 0.0
    neighbours = (not stage.embedding) + (not stage.head)
    return neighbours * constants.message_stall_s * grid.tensor_nodes**constants.message_stall_exponent


def embedding_seconds(card: ModelCard, grid: TrainingGrid, gpu: Accelerator, constants: StackConstants) -> Any:
    tokens = grid.tokens(card.sequence)
    traffic = tokens * card.hidden * EMBEDDING_TRAFFIC + ACCUMULATION_TRAFFIC * card.embedding_parameters / grid.tensor
    return traffic / _memory_rate(gpu, constants) + collective_seconds(card, grid, constants)


def head_seconds(card: ModelCard, grid: TrainingGrid, gpu: Accelerator, constants: StackConstants) -> Any:
    """The matrix that makes logits, the casts and the cross entropy, with three collectives of hidden states."""
    tokens = grid.tokens(card.sequence)
    matrix_s = sum(operator_seconds(head_operator(card, tokens, grid.tensor), gpu, constants))
    logits = tokens * card.vocabulary / grid.tensor
    loss_s = logits * constants.loss_bytes_per_logit / _memory_rate(gpu, constants)
    return matrix_s + loss_s + 3 * collective_seconds(card, grid, constants)


def _memory_rate(gpu: Accelerator, constants: StackConstants) -> Any:
    return gpu.memory_bytes_per_s * constants.memory_efficiency
