"""NVIDIA's Llama 3.1 steps on 8 to 2,048 H100: from model cards, with one factor for the software from one run."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.accuracy._steps import PredictedStep, steps_table, summary
from benchmarks.published import shared_data
from simulator.transformers.accelerators import accelerator
from simulator.transformers.block import block_operators, head_operator
from simulator.transformers.model_card import ModelCard, read_card
from simulator.transformers.stage_time import EXPOSED_COLLECTIVES, collective_seconds, operator_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import read_stack

CONSTANTS = read_stack("nanotron-h100").constants


def predicted_steps() -> list[PredictedStep]:
    """Every run at hand; the first one gives the factor and is not counted."""
    rows = _rows()
    factor = float(rows[0]["step_s"]) / _seconds(rows[0])
    return [
        PredictedStep(
            name=f"{row['model'].split()[2]} on {row['gpus']} GPUs", predicted_s=factor * _seconds(row),
            measured_s=float(row["step_s"]), counted=row is not rows[0],
            note="gives the factor" if row is rows[0] else "",
        )
        for row in rows
    ]  # fmt: skip


def _seconds(row: Mapping[str, str]) -> float:
    """A step without exposed gradients: published steps are as long on 2,048 GPUs as on 64.

    Context parallelism leaves a device half of the tokens and all of their keys and values; interleaved 1F1B shortens
    the bubble by the number of chunks.
    """
    card, gpu = _card(row), accelerator("h100")
    tensor, pipeline, context = int(row["tp"]), int(row["pp"]), int(row["cp"])
    chunks = 1 if row["vp"] == "NA" else int(row["vp"])
    tokens = _tokens(row)
    operators = [*block_operators(card, tokens, tensor)]
    block_s = sum(sum(operator_seconds(operator, gpu, CONSTANTS)) for operator in operators)
    grid = TrainingGrid(tensor=tensor, microbatch=int(row["mbs"]))
    block_s += EXPOSED_COLLECTIVES * collective_seconds(card, grid, CONSTANTS) / context
    stage_s = card.layers / pipeline * block_s
    if pipeline == 1:
        stage_s += sum(operator_seconds(head_operator(card, tokens, tensor), gpu, CONSTANTS))
    return float(stage_s * (int(row["ga"]) + (pipeline - 1) / chunks))


def _products_s(row: Mapping[str, str]) -> float:
    """Arithmetic of a step of one stage: products of matrices and attention, without what memory takes."""
    card, gpu = _card(row), accelerator("h100")
    head = head_operator(card, _tokens(row))
    blocks = card.layers * [*block_operators(card, _tokens(row))]
    products = [
        replace(each, traffic_bytes=0.0, parameters=0, products=0) for each in (*blocks, head) if each.flops > 0
    ]
    return float(sum(sum(operator_seconds(each, gpu, CONSTANTS)) for each in products) * int(row["ga"]))


def _card(row: Mapping[str, str]) -> ModelCard:
    return read_card(f"llama3-{row['model'].split()[2]}")


def _tokens(row: Mapping[str, str]) -> int:
    """Of a micro-batch on one device."""
    return int(row["mbs"]) * _card(row).sequence // int(row["cp"])


def section() -> str:
    """The section of the page."""
    steps = predicted_steps()
    first = _rows()[0]
    predicted_s, measured_s, products_s = _seconds(first), float(first["step_s"]), _products_s(first)
    return f"""## Llama 3.1 8B and 70B on 8 to 2,048 H100 (NVIDIA's DGX cloud benchmarks)

Layers from model cards with the efficiencies of `nanotron-h100`, calibrated elsewhere; NeMo's fused kernels and H100s
of another cluster take {measured_s / predicted_s:.2f} times as long, which the first run says. The others are predicted
with it. No overlap explains the factor: of the {predicted_s:.2f} s predicted of the first run none is an exchange, and
the products of matrices and attention alone take {products_s:.2f} s at the stack's share of the peak, where the
whole step took {measured_s:.2f} s. The kernels themselves are faster.

{steps_table(steps)}

{summary(steps, "runs of the same network on more GPUs differ by 0.5 % at most")}"""


def _rows() -> list[dict[str, str]]:
    with (shared_data() / "dgxc" / "steps.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
