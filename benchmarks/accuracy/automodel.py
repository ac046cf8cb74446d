"""NVIDIA's NeMo AutoModel: a dense network and mixtures of experts in plain torch on 8 to 256 H100."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import shared_data
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

CARDS = {
    "DeepSeek V3 671B": "deepseek-v3", "Qwen3 MoE 30B": "qwen3-30b-a3b", "GPT-OSS 20B": "gpt-oss-20b",
    "Llama3 70B": "llama3-70b",
}  # fmt: skip


def runs() -> list[PublishedRun]:
    """Every pre-training row."""
    with (shared_data() / "automodel" / "pretraining_h100.csv").open(newline="", encoding="utf-8") as file:
        return [_run(row) for row in csv.DictReader(file)]


def _run(row: Mapping[str, str]) -> PublishedRun:
    degrees = {name: int(row[name] or 1) for name in ("tp", "pp", "cp", "ep", "vp")}
    data = int(row["gpus"]) // (degrees["tp"] * degrees["pp"] * degrees["cp"])
    microbatch = int(row["micro_batch"])
    grid = TrainingGrid(
        data=data, tensor=degrees["tp"], pipeline=degrees["pp"], context=degrees["cp"], expert=degrees["ep"],
        chunks=degrees["vp"], zero_stage=1 if degrees["pp"] > 1 else 3, microbatch=microbatch, recomputation="full",
        accumulation=int(row["global_batch"]) // (data * microbatch),
    )  # fmt: skip
    return PublishedRun(
        name=f"{row['model']} on {row['gpus']} GPUs", preset="dgx-h100", grid=grid, stack="nemo-h100",
        card=replace(read_card(CARDS[row["model"]]), sequence=int(row["sequence"])), measured_s=float(row["step_s"]),
    )  # fmt: skip


def source() -> Source:
    published = runs()
    return Source(
        title="Llama 70B and mixtures of experts on 8 to 256 H100 (NeMo AutoModel)",
        method="By `nemo-h100`, whose kernels are those of Transformer Engine, and whose tokens cross the network "
        "once to a node, as DeepEP sends them. Recomputation is not said; without it none fits, so blocks are "
        "recomputed.",
        steps=all_predicted(published),
        commands=published[-1].command,
        not_expressed={},
    )
