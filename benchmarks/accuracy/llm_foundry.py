"""MosaicML's FSDP runs of MPT on A100-40: steps from model cards and operator efficiencies that others published."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.accuracy._steps import PredictedStep, mean_error, summary, worst_error
from benchmarks.published import shared_data, table
from simulator.transformers.accelerators import accelerator
from simulator.transformers.block import block_operators
from simulator.transformers.gradient_exchange import ADAM_TRAFFIC
from simulator.transformers.model_card import read_card
from simulator.transformers.stage_time import embedding_seconds, head_seconds, operator_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants

MATMUL_EFFICIENCY = 0.7175
"""Median over the shapes of SimuMax's table of an A100 (Apache-2.0)."""
ATTENTION_EFFICIENCY = 0.37
"""FlashAttention on A100, forward and backward: some 115 of 312 TFLOP/s (Dao, arXiv 2307.08691, figures 4 and 5)."""
NODE_BYTES_PER_S, NVLINK_BYTES_PER_S = 200e9, 300e9
"""1,600 Gb/s between nodes, for all 8 GPUs of a node together; NVLink 3 of one GPU, each way."""
TRANSFERS = 3
"""Of all parameters in bf16 and micro-batch: gathered forward and backward, and their gradients reduced."""
CONSTANTS = StackConstants(
    matmul_efficiency=MATMUL_EFFICIENCY, attention_efficiency=ATTENTION_EFFICIENCY, traffic_factor=1.0,
    loss_bytes_per_logit=40.0, launch_floor_s=0.0,
)  # fmt: skip


def predicted_steps() -> list[PredictedStep]:
    """Every run on A100-40."""
    with (shared_data() / "llm-foundry" / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == "a100_40gb"]
    return [_predicted(row) for row in rows]


def _predicted(row: Mapping[str, str]) -> PredictedStep:
    card = replace(read_card(f"mpt-{row['model']}"), sequence=int(row["seq"]))
    count, microbatch, gpu = int(row["gpus"]), int(row["microbatch"]), accelerator("a100-40")
    grid = TrainingGrid(data=count, microbatch=microbatch)
    operators = block_operators(card, microbatch * card.sequence)
    passes = [operator_seconds(operator, gpu, CONSTANTS) for operator in operators]
    forward_s, backward_s = (sum(each[i] for each in passes) for i in (0, 1))
    block_s = forward_s * (2 if row["act_ckpt"] == "True" else 1) + backward_s
    ends_s = head_seconds(card, grid, gpu, CONSTANTS) + embedding_seconds(card, grid, gpu, CONSTANTS)
    rate = NVLINK_BYTES_PER_S if count <= grid.node_devices else NODE_BYTES_PER_S
    transfers_s = TRANSFERS * 2 * card.parameters * (count - 1) / count / rate
    update_s = card.parameters * ADAM_TRAFFIC / count / (gpu.memory_bytes_per_s * CONSTANTS.memory_efficiency)
    step_s = int(row["grad_accum"]) * max(card.layers * block_s + ends_s, transfers_s) + update_s
    name = f"{row['model']}, {count} GPUs, {microbatch} x {row['seq']}"
    return PredictedStep(name=name, predicted_s=float(step_s), measured_s=float(row["step_s"]))


def section() -> str:
    """The section of the page."""
    steps = predicted_steps()
    groups: dict[str, list[PredictedStep]] = {}
    for each in steps:
        groups.setdefault(each.name.partition(",")[0], []).append(each)
    rows = [
        [model, str(len(group)), f"{mean_error(group):.1%}", f"{_bias(group):+.1%}", f"{worst_error(group):+.1%}"]
        for model, group in groups.items()
    ]
    return f"""## MPT under FSDP on 8 to 128 A100-40 (llm-foundry)

No capture of these networks: layers from model cards, matrix products at {MATMUL_EFFICIENCY:.1%} of the peak (the
median of SimuMax's table of an A100), attention at {ATTENTION_EFFICIENCY:.0%} (about what its paper measured of
FlashAttention; looked up after long sequences had come out short at 50 %), memory traffic as counted, and {TRANSFERS}
transfers of all parameters per micro-batch beside the computation. Recomputation adds a forward pass of every block.

{table(["model", "runs", "mean error", "bias", "worst"], rows)}

{summary(steps, "no repeats in the source")}"""


def _bias(steps: list[PredictedStep]) -> float:
    return statistics.fmean(each.error for each in steps)
