"""MosaicML's FSDP runs of MPT on A100-80 and H100, by software.

`mpt_runs.csv` has them: tables of MosaicML's llm-foundry (scripts/train/benchmarking/README.md, Apache-2.0) of May
2023, commit 33aeb79, and of October 2023 and January 2024, commit 4952183; columns renamed, attention kernels as its
scripts have them.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

RUNS = Path(__file__).parent / "mpt_runs.csv"
OLD = "2023-05"
"""On torch 1.13."""
FITTED = ("7b", "1b", "760m")
"""Networks of which the steps without recomputation on 8 H100, in bf16, are fitted (`llm-foundry-h100`)."""


def runs() -> list[PublishedRun]:
    """Every run."""
    with RUNS.open(newline="", encoding="utf-8") as file:
        return [_run(row) for row in csv.DictReader(file)]


def _run(row: dict[str, str]) -> PublishedRun:
    card = replace(read_card(f"mpt-{row['model']}"), sequence=int(row["sequence"]))
    gpus, microbatch, sequences = int(row["gpus"]), int(row["microbatch"]), int(row["sequences"])
    grid = TrainingGrid(
        data=gpus, zero_stage=3, microbatch=microbatch, accumulation=sequences // (gpus * microbatch),
        recomputation=row["recomputation"],
    )  # fmt: skip
    old, eight = row["software"] == OLD, row["precision"] == "fp8"
    shape = f"{grid.accumulation} x {microbatch} x {card.sequence}, recomputation {grid.recomputation}"
    fitted = (row["gpu"], gpus, grid.recomputation, eight) == ("h100", 8, "none", False) and row["model"] in FITTED
    return PublishedRun(
        name=f"{row['model']}, {gpus} {row['gpu'].upper()}, {shape}, {row['precision']}, {row['software']}",
        card=card, grid=grid, preset="dgx-h100" if row["gpu"] == "h100" else "dgx-a100-80",
        stack="llm-foundry-2023-a100" if old else f"llm-foundry-{row['gpu']}", precision="fp8" if eight else None,
        attention=None if old else row["attention"], measured_s=sequences * card.sequence / float(row["tokens_per_s"]),
        family=_family(row, grid), note="calibrated on" if fitted else "",
    )  # fmt: skip


def _family(row: dict[str, str], grid: TrainingGrid) -> str:
    if row["gpu"] != "h100":
        return f"A100-80, {'May' if row['software'] == OLD else 'October'} 2023"
    if row["precision"] == "fp8":
        return "H100, float8"
    return "H100, 128 to 512 GPUs" if grid.devices >= 128 else f"H100, recomputation {grid.recomputation}"


def source() -> Source:
    published = runs()
    steps = [replace(step, counted=not step.note) for step in all_predicted(published)]
    return Source(
        title="MPT under FSDP on 8 to 64 A100-80 and 8 to 512 H100 (llm-foundry)",
        method="By `llm-foundry-2023-a100` the runs of May 2023, on torch 1.13; by `llm-foundry-a100` and "
        "`llm-foundry-h100` later ones, whose recomputation stops early. Attention is what its scripts name, "
        "Triton's taken for FlashAttention 1. Parameters that two networks keep between passes are gathered again.",
        steps=steps,
        commands=published[-1].command,
        calibrated="two numbers, the rate of products beside other kernels and of FlashAttention 1 on H100, on 15 "
        "steps of 7b, 1b and 760m on 8 of them, which are not counted",
        not_expressed={},
    )
