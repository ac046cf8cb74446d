"""The grids that a decoder can be trained on with so many GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from simulator.errors import require
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import MOST_MICROBATCH, STEP_SEQUENCES
from simulator.language_models.training_grid import TrainingGrid
from simulator.plan_rules import MOST_MICROBATCHES

MOST_TENSOR = 8
"""Across nodes a tensor group is slower than any other split in every measured group of runs."""
MOST_EXPERT = 64
"""Devices over which the experts of a layer are shared out in training: DeepSeek-V3 (arXiv 2412.19437, section 3.2)."""
LEAST_PART = 4096
"""Tokens: sequences are not split into shorter parts by context parallelism."""
CHUNKS = (2, 4)
"""Virtual stages of a device that are tried: each doubling halves the bubble and doubles what is sent."""
STRATEGIES = ("data", "fsdp", "megatron")
MOST_STEP_TOKENS = 2**24
"""Of a step, where nobody says how many: the most of Llama 3 405B (arXiv 2407.21783, section 3.4.2)."""
Degrees = tuple[int, int, int, int]
"""Tensor, context, pipeline and data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divisible:
    """What degrees of parallelism divide, of a network that is no card; 0 heads leave tensor degrees free."""

    heads: int
    """Heads of queries."""
    key_heads: int
    """Heads of keys and values."""
    sequence: int
    """Tokens of a sequence."""
    layers: int
    """Blocks, or layers where there are none: stages at most."""
    experts: int
    """Experts of a routed layer, or 0."""


def default_batch(card: ModelCard, devices: int) -> int:
    """Sequences of a step where nobody says: STEP_SEQUENCES for each device, halved while these are too many tokens."""
    batch = STEP_SEQUENCES * devices
    while batch * card.sequence > MOST_STEP_TOKENS and batch % 2 == 0:
        batch //= 2
    return batch


def candidate_grids(
    card: ModelCard | Divisible,
    devices: int,
    batch: int,
    node_devices: int = 8,
    strategies: Collection[str] = STRATEGIES,
    most_samples: int = MOST_MICROBATCH,
) -> Iterator[TrainingGrid]:
    """Grids of all `devices` for steps of `batch` sequences: every split whose degrees divide the network.

    Tensor degrees stay inside a node and divide the heads; stages are at most blocks; a sequence is split into parts of
    LEAST_PART tokens at least, experts, split over tensor groups or whole, over as many devices as divide them,
    MOST_EXPERT at most; micro-batches are parts of a replica's samples, up to `most_samples`; gradients and parameters
    are shared (ZeRO-2 and -3) where there is no pipeline, by all replicas and by those of a node; virtual stages are of
    equally many blocks, with rounds of as many micro-batches as stages.
    """
    require(devices >= 1, "devices", devices, "it is at least 1")
    require(batch >= 1, "batch_size", batch, "it is at least 1")
    for tensor, context, pipeline, data in _degrees(card, devices, node_devices):
        replicas, split = data * context, (tensor, context, pipeline)
        if batch % data:
            continue
        for microbatch in _divisors(batch // data, most_samples):
            if batch // data // microbatch > MOST_MICROBATCHES:
                continue
            for expert, expert_tensor in _expert_degrees(card.experts, replicas, tensor):
                grid = TrainingGrid(
                    data=data, tensor=split[0], context=split[1], pipeline=split[2], expert=expert,
                    expert_tensor=expert_tensor,
                    microbatch=microbatch, accumulation=batch // data // microbatch, node_devices=node_devices,
                )  # fmt: skip
                for each in (*_sharing(grid), *_interleaved(grid, card)):
                    if each.strategy in strategies:
                        yield each


def _expert_degrees(experts: int, replicas: int, tensor: int) -> Iterator[tuple[int, int]]:
    """(expert, expert_tensor): experts split in tensor groups, or whole ones on as many whole groups."""
    if not experts:
        yield 1, 0
        return
    yield from ((n, 0) for n in _divisors(experts, min(replicas, MOST_EXPERT)) if replicas % n == 0)
    if tensor > 1:
        whole = _divisors(experts, min(replicas * tensor, MOST_EXPERT))
        yield from ((n, 1) for n in whole if n % tensor == replicas * tensor % n == 0)


def _sharing(grid: TrainingGrid) -> Iterator[TrainingGrid]:
    """Ways in which replicas share states; the parameters of what has no pipeline inside nodes alone, too."""
    stages = (0,) if grid.replicas == 1 else (0, 1) if grid.pipeline > 1 else (0, 1, 2, 3)
    yield from (replace(grid, zero_stage=stage) for stage in stages)
    near = grid.node_devices // grid.tensor
    whole = near % grid.context == grid.replicas % near == 0
    if 3 in stages and 1 < near < grid.replicas and whole and grid.expert == 1:
        yield replace(grid, zero_stage=3, shard_group=near)


def _interleaved(grid: TrainingGrid, card: ModelCard | Divisible) -> Iterator[TrainingGrid]:
    """With virtual stages; of a network that has heads."""
    if grid.pipeline == 1 or grid.accumulation % grid.pipeline or not card.heads:
        return
    for chunks in CHUNKS:
        if card.layers % (grid.pipeline * chunks) == 0:
            yield from _sharing(replace(grid, chunks=chunks))


def _degrees(card: ModelCard | Divisible, devices: int, node_devices: int) -> Iterator[Degrees]:
    for tensor in _divisors(devices, min(MOST_TENSOR, node_devices)):
        if card.heads % tensor or (card.key_heads % tensor and tensor % card.key_heads):
            continue
        for context in _divisors(devices // tensor, max(1, card.sequence // LEAST_PART)):
            if card.sequence % context:
                continue
            for pipeline in _divisors(devices // tensor // context, card.layers):
                yield tensor, context, pipeline, devices // tensor // context // pipeline


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]
