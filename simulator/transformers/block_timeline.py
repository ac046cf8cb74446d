"""One block inside a stage as a picture: which operator, collective or exchange runs when, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from simulator.transformers.accelerators import Accelerator, accelerator
from simulator.transformers.block import BlockOperator, block_operators
from simulator.transformers.model_card import ModelCard
from simulator.transformers.stage_time import (
    EXPOSED_COLLECTIVES,
    FORWARD_COLLECTIVES,
    BlockSeconds,
    block_seconds,
    collective_seconds,
    expert_exchange_seconds,
    operator_seconds,
)
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import TrainingStack

GATHERED, SCATTERED = ("qkv", "gate_up"), ("output", "down")
"""Matrices whose input a tensor group gathers, and whose output it sums and scatters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSpan:
    """Something that runs on the GPU from start_s to end_s: an operator of `block`, or what it waits for."""

    name: str
    kind: Literal["compute", "tensor", "context", "expert", "states", "host"]
    backward: bool
    start_s: float
    end_s: float


def block_timeline(card: ModelCard, grid: TrainingGrid, stack: TrainingStack) -> tuple[BlockSpan, ...]:
    """A micro-batch's forward and backward pass through one block, one span after another, from second 0.

    Collectives that run beside a matrix product are not shown, but for what stands out behind it. Where the host
    launches more slowly than the GPU computes, the last span is what the GPU waits for it. Together they are the
    block's seconds of `stage_time` without stalls.
    """
    gpu, constants = accelerator(stack.accelerator), stack.constants
    block = block_seconds(card, grid, gpu, constants)
    spans: list[BlockSpan] = []
    for name, kind, backward, seconds in _parts(card, grid, stack, gpu, block):
        start_s = spans[-1].end_s if spans else 0.0
        if seconds > 0:
            span = BlockSpan(name=name, kind=kind, backward=backward, start_s=start_s, end_s=start_s + seconds)
            spans.append(span)
    return tuple(spans)


Part = tuple[str, Literal["compute", "tensor", "context", "expert", "states", "host"], bool, float]


def _parts(
    card: ModelCard, grid: TrainingGrid, stack: TrainingStack, gpu: Accelerator, block: BlockSeconds
) -> Iterator[Part]:
    operators = tuple(block_operators(card, grid.tokens(card.sequence), grid.tensor, expert=grid.expert))
    yield from _forward(card, grid, stack, gpu, operators, backward=False)
    if grid.recomputation == "full":
        yield from _forward(card, grid, stack, gpu, operators, backward=True)
    collective_s = float(collective_seconds(card, grid, stack.constants))
    exchange_s = float(expert_exchange_seconds(card, grid, stack.constants))
    for operator in reversed(operators):
        if operator.name in SCATTERED:
            yield f"gather gradients of {operator.name}", "tensor", True, collective_s
        if operator.name == "down":
            yield "gradients to experts", "expert", True, exchange_s
        yield operator.name, "compute", True, float(operator_seconds(operator, gpu, stack.constants)[1])
        if operator.name == "gate_up":
            yield "gradients from experts", "expert", True, exchange_s
    exposed = EXPOSED_COLLECTIVES + (FORWARD_COLLECTIVES if grid.recomputation == "full" else 0)
    yield "collectives beside matrices", "tensor", True, float(block.tensor_s) - exposed * collective_s
    yield "keys and values", "context", True, float(block.context_s)
    yield "shared parameters and gradients", "states", True, float(block.states_s)
    yield "launches", "host", True, float(block.host_s) - float(block.gpu_s)


def _forward(
    card: ModelCard,
    grid: TrainingGrid,
    stack: TrainingStack,
    gpu: Accelerator,
    operators: tuple[BlockOperator, ...],
    *,
    backward: bool,
) -> Iterator[Part]:
    """The forward pass, or what is recomputed of it in the backward pass."""
    collective_s = float(collective_seconds(card, grid, stack.constants))
    exchange_s = float(expert_exchange_seconds(card, grid, stack.constants))
    for operator in operators:
        if operator.name in GATHERED:
            yield f"gather inputs of {operator.name}", "tensor", backward, collective_s
        if operator.name == "gate_up":
            yield "tokens to experts", "expert", backward, exchange_s
        yield operator.name, "compute", backward, float(operator_seconds(operator, gpu, stack.constants)[0])
        if operator.name == "down":
            yield "tokens from experts", "expert", backward, exchange_s
        if operator.name in SCATTERED:
            yield f"sum of {operator.name}", "tensor", backward, collective_s
