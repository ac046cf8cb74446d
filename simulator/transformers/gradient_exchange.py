"""Seconds of summing gradients over replicas, of the optimizer, and of gathering parameters after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.transformers.accelerators import Accelerator
from simulator.transformers.model_card import ModelCard
from simulator.transformers.stage_split import StageBlocks
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants

GRADIENT_BYTES, PARAMETER_BYTES = 4, 2
"""Gradients are summed in fp32, parameters gathered in bf16."""
BUCKET_PARAMETERS = 25 * 2**20 // 2
"""Of torch DDP: 25 MiB of bf16 gradients."""
ADAM_TRAFFIC, ZERO_GRADIENT_TRAFFIC = 30, 8
"""Bytes per parameter: gradient, weight and two moments in fp32 read, three of them written, and the bf16 copy; on
every replica the fp32 gradient is read for its norm and set to zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSeconds:
    """A collective over the replicas: seconds of its bytes, and of its hops from replica to replica."""

    transfer_s: Any
    hops_s: Any

    @property
    def total_s(self) -> Any:
        return self.transfer_s + self.hops_s


def exchange_seconds(stage: StageBlocks, card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> RingSeconds:
    """Until the gradients of `stage` are summed over its replicas, if nothing hides it.

    An all-reduce, or a reduce-scatter where ZeRO needs a slice only: rings over the replicas, bucket by bucket. NCCL
    has trees for an all-reduce alone, so that its hops cost less than those of the other two.
    """
    if grid.zero_stage:
        return _rings(stage, GRADIENT_BYTES, constants.gather_hop_s, card, grid, constants)
    once = _rings(stage, GRADIENT_BYTES, constants.ring_hop_s, card, grid, constants)
    return RingSeconds(transfer_s=2 * once.transfer_s, hops_s=2 * once.hops_s)


def gather_seconds(stage: StageBlocks, card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Of the parameters of `stage`, of which each replica has a slice."""
    if not grid.zero_stage:
        return 0.0
    return _rings(stage, PARAMETER_BYTES, constants.gather_hop_s, card, grid, constants).total_s


def update_seconds(
    stage: StageBlocks, card: ModelCard, grid: TrainingGrid, gpu: Accelerator, constants: StackConstants
) -> Any:
    """Norm of the gradients and Adam on one stage: traffic, and the host's work by block."""
    parameters = stage.parameters(card, grid.tensor, grid.expert)
    shared = grid.owners if grid.zero_stage >= 2 else 1
    traffic = parameters * (ADAM_TRAFFIC / grid.owners + ZERO_GRADIENT_TRAFFIC / shared)
    seconds = traffic / (gpu.memory_bytes_per_s * constants.memory_efficiency)
    return seconds + constants.update_layer_s * stage.blocks


def tied_seconds(card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Of adding the gradients of a tied table on the first and the last stage."""
    if not card.tied_embeddings or grid.pipeline == 1:
        return 0.0
    size = card.head_parameters / grid.tensor * GRADIENT_BYTES
    across = constants.network_share * constants.network_bytes_per_s
    return size / (across if grid.devices > grid.node_devices else constants.tensor_bytes_per_s)


def exposed_seconds(exchange: RingSeconds, hiding_s: Any, constants: StackConstants) -> Any:
    """What is left of an exchange that runs beside the last backward pass, which hides bytes and no hops.

    So the runs at hand show it: with more replicas an exchange adds the same seconds at any micro-batch.
    """
    return exchange.hops_s + np.maximum(0.0, exchange.transfer_s - constants.overlap * hiding_s)


def _rings(
    stage: StageBlocks, element_bytes: int, hop_s: Any, card: ModelCard, grid: TrainingGrid, constants: StackConstants
) -> RingSeconds:
    """One pass around the rings of a stage's replicas; those of an expert are fewer, by its degree."""
    experts = stage.expert_parameters(card, grid.tensor, grid.expert)
    dense = stage.parameters(card, grid.tensor, grid.expert) - experts
    rings = [(dense, grid.replicas, 1), (experts, grid.replicas // grid.expert, grid.expert)]
    return RingSeconds(
        transfer_s=sum(
            _transfer_seconds(size * element_bytes, count, apart, grid, constants) for size, count, apart in rings
        ),
        hops_s=sum(_hops_seconds(size, count, apart, hop_s, grid) for size, count, apart in rings),
    )


def _transfer_seconds(size: float, count: int, apart: int, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Of the bytes of `size` around a ring of `count` devices, every `apart`-th.

    In a node, the rings of its other devices share its network.
    """
    carried = size * (count - 1) / count
    if not _crosses_nodes(count, apart, grid):
        return carried / constants.tensor_bytes_per_s
    neighbours = max(1, min(count, grid.per_node(grid.replicas) // apart))
    return carried / (constants.network_share * constants.network_bytes_per_s * neighbours)


def _hops_seconds(parameters: float, count: int, apart: int, hop_s: Any, grid: TrainingGrid) -> Any:
    """Of the hops around a ring across nodes, bucket by bucket."""
    return (count - 1) * parameters / BUCKET_PARAMETERS * hop_s if _crosses_nodes(count, apart, grid) else 0.0


def _crosses_nodes(count: int, apart: int, grid: TrainingGrid) -> bool:
    return count > 1 and count * apart * grid.tensor > grid.node_devices
