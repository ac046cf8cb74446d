"""GPT of 22 billion to a trillion parameters under Megatron-LM on 8 to 512 A100, by the stack `megatron-a100`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.accuracy._steps import PredictedStep, steps_table, summary
from simulator.transformers.model_card import ModelCard
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import read_stack

STACK = read_stack("megatron-a100")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """Seconds of a step with every block recomputed, and with sequence parallelism and attention alone recomputed."""

    layers: int
    hidden: int
    heads: int
    pipeline: int
    microbatch: int
    accumulation: int
    full_s: float
    attention_s: float


RUNS = {
    "22B": PublishedRun(
        layers=48, hidden=6144, heads=64, pipeline=1, microbatch=4, accumulation=1, full_s=1.42, attention_s=1.10
    ),
    "175B": PublishedRun(
        layers=96, hidden=12288, heads=96, pipeline=8, microbatch=1, accumulation=64, full_s=18.13, attention_s=13.75
    ),
    "530B": PublishedRun(
        layers=105, hidden=20480, heads=128, pipeline=35, microbatch=1, accumulation=280, full_s=49.05,
        attention_s=37.83,
    ),
    "1T": PublishedRun(
        layers=128, hidden=25600, heads=160, pipeline=64, microbatch=1, accumulation=512, full_s=94.42,
        attention_s=71.49,
    ),
}  # fmt: skip
"""Korthikanti et al., arXiv 2205.05198, tables 3 and 5: tensor 8, 2,048 positions, 51,200 words, A100 of 80 GB."""


def predicted_steps() -> list[PredictedStep]:
    """Every run, both ways."""
    return [step for name, run in RUNS.items() for step in _both_ways(name, run)]


def _both_ways(name: str, run: PublishedRun) -> list[PredictedStep]:
    card = ModelCard(
        name=f"gpt-{name}", layers=run.layers, hidden=run.hidden, heads=run.heads, ffn=4 * run.hidden, sequence=2048,
        vocabulary=51_200, gated=False, norm_vectors=2, biases=True, tied_embeddings=True, positions=2048,
    )  # fmt: skip
    grid = TrainingGrid(
        tensor=8, pipeline=run.pipeline, microbatch=run.microbatch, accumulation=run.accumulation, node_devices=8
    )
    again = replace(grid, recomputation="full")
    ways = (("blocks recomputed", again, run.full_s), ("attention recomputed", grid, run.attention_s))
    note = "stages are interleaved there, not here" if name in ("175B", "530B") else ""
    return [
        PredictedStep(
            name=f"{name} on {grid.devices} GPUs, {way}", measured_s=seconds, note=note,
            predicted_s=float(step_seconds(card, placed, STACK).step_s),
        )
        for way, placed, seconds in ways
    ]  # fmt: skip


def section() -> str:
    """The section of the page."""
    steps = predicted_steps()
    return f"""## GPT of 22B to 1T under Megatron-LM on 8 to 512 A100 (Korthikanti et al.)

By the stack `megatron-a100`, as `shardscope compare CARD --cluster dgx-a100` takes it. Its constants are stated, from
SimuMax's table of an A100, the FlashAttention-2 paper and nccl-tests; it was made when these steps came out 9 to 80 %
too long by `nanotron-h100`, then taken for every GPU, and no constant was changed after. What recomputing the attention
alone takes is left out.

{steps_table(steps)}

{summary(steps, "no repeats in the source")}"""
