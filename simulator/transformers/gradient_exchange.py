"""Seconds of summing gradients over replicas, of the optimizer, and of gathering parameters after it."""

from __future__ import annotations

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


def exchange_seconds(parameters: float, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Until the gradients of a stage with that many parameters per device are summed, if nothing hides it.

    An all-reduce, or a reduce-scatter where ZeRO needs a slice only: rings over the replicas, bucket by bucket.
    """
    passes = 1 if grid.zero_stage else 2
    return passes * _ring_seconds(parameters, GRADIENT_BYTES, grid, constants)


def gather_seconds(parameters: float, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Of the updated parameters, where each replica has updated a slice."""
    return _ring_seconds(parameters, PARAMETER_BYTES, grid, constants) if grid.zero_stage else 0.0


def update_seconds(
    stage: StageBlocks, card: ModelCard, grid: TrainingGrid, gpu: Accelerator, constants: StackConstants
) -> Any:
    """Norm of the gradients and Adam on one stage: traffic, and the host's work by block."""
    owners = grid.data if grid.zero_stage else 1
    traffic = stage.parameters(card, grid.tensor) * (ADAM_TRAFFIC / owners + ZERO_GRADIENT_TRAFFIC)
    seconds = traffic / (gpu.memory_bytes_per_s * constants.memory_efficiency)
    return seconds + constants.update_layer_s * stage.blocks


def tied_seconds(card: ModelCard, grid: TrainingGrid, constants: StackConstants) -> Any:
    """Of adding the gradients of a tied table on the first and the last stage."""
    if not card.tied_embeddings or grid.pipeline == 1:
        return 0.0
    size = card.head_parameters / grid.tensor * GRADIENT_BYTES
    across = constants.network_share * constants.network_bytes_per_s
    return size / (across if grid.devices > grid.node_devices else constants.tensor_bytes_per_s)


def exposed_seconds(exchange_s: Any, hiding_s: Any, grid: TrainingGrid, constants: StackConstants) -> Any:
    """What is left of an exchange that runs beside the last backward pass.

    The reduce-scatters of ZeRO-1 hide nothing in the runs at hand: at any micro-batch they add the same seconds.
    """
    return exchange_s if grid.zero_stage else np.maximum(0.0, exchange_s - constants.overlap * hiding_s)


def _ring_seconds(parameters: float, element_bytes: int, grid: TrainingGrid, constants: StackConstants) -> Any:
    """One pass around a ring of the replicas. In a node, the rings of its other devices share its network."""
    count = grid.data
    size = parameters * element_bytes * (count - 1) / count
    if not grid.data_crosses_nodes:
        return size / constants.tensor_bytes_per_s
    rate = constants.network_share * constants.network_bytes_per_s * grid.replicas_per_node
    buckets = parameters / BUCKET_PARAMETERS
    return size / rate + (count - 1) * buckets * constants.ring_hop_s
