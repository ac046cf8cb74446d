"""The grids that a decoder can be trained on with so many GPUs, ranked by predicted step, those that fit first."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

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


@dataclass(frozen=True, kw_only=True)
class RankedGrid:
    """A grid with its memory and, once asked for, its step: of 600 grids of a large model 70 run, and the passes of
    64 stages times 1,000 micro-batches take a tenth of a second."""

    card: ModelCard
    grid: TrainingGrid
    stack: TrainingStack
    memories: tuple[StageMemory, ...]
    verdict: MemoryVerdict

    @property
    def runs(self) -> bool:
        return self.verdict.fit in ("fits", "border")

    @property
    def most_bytes(self) -> float:
        """Of memory on the fullest device."""
        return max(float(memory.needed) for memory in self.memories)

    @cached_property
    def step(self) -> StepSeconds:
        return step_seconds(self.card, self.grid, self.stack, retried=self.verdict.retried)

    @cached_property
    def interval_s(self) -> tuple[float, float]:
        """Where 80 % of measured steps fall."""
        return grid_interval(self.card, self.grid, self.stack, self.verdict.retried)

    @property
    def tokens_per_s(self) -> float:
        return self.grid.batch * self.card.sequence / float(self.step.step_s)

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation of the dense bf16 peak, recomputation not counted."""
        peak = accelerator(self.stack.accelerator).flops_per_s * self.grid.devices
        return self.tokens_per_s * self.card.flops_per_token / peak


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
    """What is predicted of one grid: with recomputation where it does not fit without."""
    memories = stage_memories(card, grid, stack)
    opinion = verdict(card, grid, stack, memories)
    if opinion.fit == "does not fit" and grid.recomputation == "none":
        return ranked_grid(card, replace(grid, recomputation="full"), stack)
    return RankedGrid(card=card, grid=grid, stack=stack, memories=memories, verdict=opinion)


def ranked_grids(
    card: ModelCard,
    devices: int,
    batch: int,
    stack: TrainingStack,
    *,
    node_devices: int = 8,
    strategies: Collection[str] = STRATEGIES,
) -> list[RankedGrid]:
    """All candidates, those that run by step, then the others by the memory that they need.

    Blocks are recomputed where a grid does not fit without. Raises InputError where there is no candidate.
    """
    candidates = candidate_grids(card, devices, batch, node_devices, strategies)
    ranked = [ranked_grid(card, grid, stack) for grid in candidates]
    rule = (
        f"a number of replicas that divides {devices} devices divides the batch, and each takes at most "
        f"{MOST_MICROBATCHES:,} micro-batches of {MOST_MICROBATCH}"
    )
    require(len(ranked) > 0, "batch_size", batch, rule)
    return sorted(ranked, key=_rank)


def _rank(each: RankedGrid) -> tuple[bool, float, int]:
    return not each.runs, float(each.step.step_s) if each.runs else each.most_bytes, _kinds(each.grid)


def _kinds(grid: TrainingGrid) -> int:
    """Of parallelism in a grid; of equally fast ones the simplest comes first."""
    return sum(degree > 1 for degree in (grid.tensor, grid.pipeline, grid.context, grid.expert)) + grid.zero_stage


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]
