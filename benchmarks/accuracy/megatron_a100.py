"""GPT of 22 billion to a trillion parameters under Megatron-LM on 8 to 512 A100, by the stack `megatron-2022-a100`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSteps:
    """Seconds of a step with every block recomputed, and with sequence parallelism and attention alone recomputed."""

    layers: int
    hidden: int
    heads: int
    pipeline: int
    microbatch: int
    accumulation: int
    full_s: float
    attention_s: float
    chunks: int = 1


STEPS = {
    "22B": PublishedSteps(
        layers=48, hidden=6144, heads=64, pipeline=1, microbatch=4, accumulation=1, full_s=1.42, attention_s=1.10
    ),
    "175B": PublishedSteps(
        layers=96, hidden=12288, heads=96, pipeline=8, microbatch=1, accumulation=64, full_s=18.13, attention_s=13.75,
        chunks=3,
    ),
    "530B": PublishedSteps(
        layers=105, hidden=20480, heads=128, pipeline=35, microbatch=1, accumulation=280, full_s=49.05,
        attention_s=37.83, chunks=3,
    ),
    "1T": PublishedSteps(
        layers=128, hidden=25600, heads=160, pipeline=64, microbatch=1, accumulation=512, full_s=94.42,
        attention_s=71.49,
    ),
}  # fmt: skip
"""Korthikanti et al., arXiv 2205.05198, tables 3 and 5: tensor 8, 2,048 positions, 51,200 words, A100 of 80 GB."""


def runs() -> list[PublishedRun]:
    """Every network, both ways."""
    return [run for name, steps in STEPS.items() for run in _both_ways(name, steps)]


def _both_ways(name: str, steps: PublishedSteps) -> list[PublishedRun]:
    card = ModelCard(
        name=f"gpt-{name}", layers=steps.layers, hidden=steps.hidden, heads=steps.heads, ffn=4 * steps.hidden,
        vocabulary=51_200, sequence=2048, gated=False, norm_vectors=2, biases=True, tied_embeddings=True,
        positions=2048,
    )  # fmt: skip
    grid = TrainingGrid(
        tensor=8, pipeline=steps.pipeline, microbatch=steps.microbatch, accumulation=steps.accumulation,
        chunks=steps.chunks, recomputation="full",
    )  # fmt: skip
    attention = replace(grid, recomputation="selective")
    ways = (("blocks recomputed", grid, steps.full_s), ("attention recomputed", attention, steps.attention_s))
    return [
        PublishedRun(
            name=f"{name} on {grid.devices} GPUs, {way}", card=card, grid=placed, preset="dgx-a100", memory="80GiB",
            stack="megatron-2022-a100", measured_s=seconds,
        )
        for way, placed, seconds in ways
    ]  # fmt: skip


def source() -> Source:
    published = runs()
    return Source(
        title="GPT of 22B to 1T under Megatron-LM on 8 to 512 A100 (Korthikanti et al.)",
        method="By the stack `megatron-2022-a100`, whose constants are stated, from data sheets and tables of kernels; "
        "scores are written to memory, as then. Stages of the 175B and the 530B are interleaved three times. The "
        "command's card is a file with these sizes.",
        steps=all_predicted(published),
        commands=published[0].command,
        not_expressed={},
    )
