"""torchtitan's bf16 rows of Llama 3.1: FSDP and tensor parallelism on 8 to 256 H100, one factor for each software."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.accuracy._steps import PredictedStep, steps_table, summary
from simulator.transformers.accelerators import ACCELERATORS
from simulator.transformers.block import block_operators
from simulator.transformers.model_card import read_card
from simulator.transformers.stage_time import operator_seconds
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import read_stack

STACK = read_stack("nanotron-h100")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """tokens_per_s of one GPU, as torchtitan's benchmarks say; compiled: by torch.compile; again: which blocks are
    recomputed ("selective": of every other matrix product and of what lies between)."""

    card: str
    grid: TrainingGrid
    compiled: bool
    again: str
    tokens_per_s: float


def _fsdp(data: int, microbatch: int, tensor: int = 1, recomputation: str = "none") -> TrainingGrid:
    grid = TrainingGrid(data=data, tensor=tensor, zero_stage=3, microbatch=microbatch)
    return replace(grid, recomputation="full") if recomputation == "full" else grid


ROWS = (
    PublishedRow(card="llama3-8b", grid=_fsdp(8, 2), compiled=False, again="selective", tokens_per_s=5762),
    PublishedRow(card="llama3-8b", grid=_fsdp(8, 2), compiled=True, again="selective", tokens_per_s=6667),
    PublishedRow(card="llama3-8b", grid=_fsdp(128, 2), compiled=False, again="selective", tokens_per_s=5605),
    PublishedRow(card="llama3-8b", grid=_fsdp(128, 2), compiled=True, again="selective", tokens_per_s=6514),
    PublishedRow(card="llama3-8b", grid=_fsdp(8, 12, 8), compiled=True, again="selective", tokens_per_s=4378),
    PublishedRow(card="llama3-70b", grid=_fsdp(32, 16, 8, "full"), compiled=True, again="full", tokens_per_s=597.3),
)
"""Tables 1 and 3 of December 2024 and "Vanilla TP" of June 2025: all rows at hand without float8."""


def _seconds(row: PublishedRow) -> float:
    """A step by `STACK`; selective recomputation adds half of a forward pass."""
    card = read_card(row.card)
    seconds = float(step_seconds(card, row.grid, STACK).step_s)
    if row.again == "selective":
        operators = block_operators(card, row.grid.tokens(card.sequence), row.grid.tensor)
        forward_s = sum(
            float(operator_seconds(operator, ACCELERATORS["h100"], STACK.constants)[0])
            for operator in operators
            if operator.kind != "attention"
        )
        seconds += card.layers * forward_s / 2
    return seconds


def predicted_steps() -> list[PredictedStep]:
    """Every row; the first of each software gives its factor and is not counted."""
    factors: dict[bool, float] = {}
    steps = []
    for row in ROWS:
        card = read_card(row.card)
        measured_s = row.grid.microbatch * card.sequence / row.tokens_per_s / row.grid.tensor
        first = row.compiled not in factors
        factor = factors.setdefault(row.compiled, measured_s / _seconds(row))
        degrees = f"FSDP {row.grid.data} x tensor {row.grid.tensor}, {row.grid.microbatch} sequences"
        kind = "compiled" if row.compiled else "eager"
        note = f"gives the factor {factor:.2f}" if first else ""
        name = f"{card.name}, {degrees}, {kind}, {row.again} recomputation"
        predicted_s = factor * _seconds(row)
        steps.append(
            PredictedStep(name=name, predicted_s=predicted_s, measured_s=measured_s, counted=not first, note=note)
        )
    return steps


def section() -> str:
    """The section of the page."""
    steps = predicted_steps()
    return f"""## Llama 3.1 8B and 70B under torchtitan on 8 to 256 H100 (PyTorch)

Layers from model cards with the efficiencies of `nanotron-h100`, calibrated elsewhere; parameters gathered and
gradients scattered block by block, beside the computation. Its H100s are limited to 500 W with slower memory, and
torch.compile fuses kernels: the first row of each software gives one factor, the others are predicted with it. Rows in
float8 are left out, and tables whose batch is not said.

{steps_table(steps)}

{summary(steps, "no repeats in the source")}"""
