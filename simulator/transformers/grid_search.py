"""The grids that a decoder can be trained on with so many GPUs, ranked by predicted step, those that fit first."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from simulator.errors import require
from simulator.plan_rules import MOST_MICROBATCHES
from simulator.transformers.accelerators import accelerator
from simulator.transformers.grid_interval import grid_interval
from simulator.transformers.model_card import ModelCard
from simulator.transformers.step_memory import MemoryVerdict, StageMemory, stage_memories, verdict
from simulator.transformers.step_time import StepSeconds, step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import TrainingStack

MOST_TENSOR = 8
"""Across nodes a tensor group is slower than any other split in every measured group of runs."""
MOST_MICROBATCH = 16
LEAST_PART = 4096
"""Tokens: sequences are not split into shorter parts by context parallelism."""
STRATEGIES = ("data", "fsdp", "megatron")
Degrees = tuple[int, int, int, int]
"""Tensor, context, pipeline and data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGrid:
    """A grid with what is predicted of it. low_s, high_s: where 80 % of measured steps fall. mfu: model FLOPs
    utilisation of the dense bf16 peak, recomputation not counted."""

    grid: TrainingGrid
    step: StepSeconds
    low_s: float
    high_s: float
    memories: tuple[StageMemory, ...]
    verdict: MemoryVerdict
    tokens_per_s: float
    mfu: float

    @property
    def runs(self) -> bool:
        return self.verdict.fit in ("fits", "border")


def candidate_grids(
    card: ModelCard, devices: int, batch: int, node_devices: int = 8, strategies: Collection[str] = STRATEGIES
) -> Iterator[TrainingGrid]:
    """Grids of all `devices` for steps of `batch` sequences: every split whose degrees divide the network.

    Tensor degrees stay inside a node and divide the heads; stages are at most blocks; a sequence is split into parts of
    LEAST_PART tokens at least, experts over as many devices as divide them; micro-batches are powers of 2; gradients
    and parameters are shared (ZeRO-2 and -3) where there is no pipeline.
    """
    require(devices >= 1, "devices", devices, "it is at least 1")
    require(batch >= 1, "batch_size", batch, "it is at least 1")
    for tensor, context, pipeline, data in _degrees(card, devices, node_devices):
        replicas, split = data * context, (tensor, context, pipeline)
        if batch % data:
            continue
        for microbatch in (2**i for i in range(MOST_MICROBATCH.bit_length()) if batch // data % 2**i == 0):
            if batch // data // microbatch > MOST_MICROBATCHES:
                continue
            for expert in _divisors(card.experts, replicas) if card.experts else [1]:
                stages = (0,) if replicas == 1 else (0, 1) if pipeline > 1 else (0, 1, 2, 3)
                for zero_stage in stages if replicas % expert == 0 else ():
                    grid = TrainingGrid(
                        data=data, tensor=split[0], context=split[1], pipeline=split[2], expert=expert,
                        zero_stage=zero_stage, microbatch=microbatch, accumulation=batch // data // microbatch,
                        node_devices=node_devices,
                    )  # fmt: skip
                    if grid.strategy in strategies:
                        yield grid


def _degrees(card: ModelCard, devices: int, node_devices: int) -> Iterator[Degrees]:
    for tensor in _divisors(devices, min(MOST_TENSOR, node_devices)):
        if card.heads % tensor or (card.key_heads % tensor and tensor % card.key_heads):
            continue
        for context in _divisors(devices // tensor, max(1, card.sequence // LEAST_PART)):
            if card.sequence % context:
                continue
            for pipeline in _divisors(devices // tensor // context, card.layers):
                yield tensor, context, pipeline, devices // tensor // context // pipeline


def ranked_grid(card: ModelCard, grid: TrainingGrid, stack: TrainingStack) -> RankedGrid:
    """What is predicted of one grid."""
    memories = stage_memories(card, grid, stack)
    opinion = verdict(card, grid, stack, memories)
    step = step_seconds(card, grid, stack, retried=opinion.retried)
    low_s, high_s = grid_interval(card, grid, stack, opinion.retried)
    tokens_per_s = grid.batch * card.sequence / float(step.step_s)
    peak = accelerator(stack.accelerator).flops_per_s * grid.devices
    return RankedGrid(
        grid=grid, step=step, low_s=low_s, high_s=high_s, memories=memories, verdict=opinion,
        tokens_per_s=tokens_per_s, mfu=tokens_per_s * card.flops_per_token / peak,
    )  # fmt: skip


def ranked_grids(
    card: ModelCard,
    devices: int,
    batch: int,
    stack: TrainingStack,
    *,
    node_devices: int = 8,
    strategies: Collection[str] = STRATEGIES,
) -> list[RankedGrid]:
    """All candidates, those that run first, then by step.

    Blocks are recomputed where a grid does not fit without. Raises InputError where there is no candidate.
    """
    candidates = candidate_grids(card, devices, batch, node_devices, strategies)
    ranked = [ranked_grid(card, _within_memory(card, grid, stack), stack) for grid in candidates]
    rule = (
        f"a number of replicas that divides {devices} devices divides the batch, and each takes at most "
        f"{MOST_MICROBATCHES:,} micro-batches of {MOST_MICROBATCH}"
    )
    require(len(ranked) > 0, "batch_size", batch, rule)
    return sorted(ranked, key=lambda each: (not each.runs, float(each.step.step_s), _kinds(each.grid)))


def _kinds(grid: TrainingGrid) -> int:
    """Of parallelism in a grid; of equally fast ones the simplest comes first."""
    return sum(degree > 1 for degree in (grid.tensor, grid.pipeline, grid.context, grid.expert)) + grid.zero_stage


def _within_memory(card: ModelCard, grid: TrainingGrid, stack: TrainingStack) -> TrainingGrid:
    """`grid`, with recomputation where it needs that to fit."""
    if verdict(card, grid, stack, stage_memories(card, grid, stack)).fit != "does not fit":
        return grid
    return replace(grid, recomputation="full")


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]
