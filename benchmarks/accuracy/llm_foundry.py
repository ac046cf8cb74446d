"""MosaicML's FSDP runs of MPT on A100-40."""

from __future__ import annotations

import csv
from dataclasses import replace

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import shared_data
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid


def runs() -> list[PublishedRun]:
    """Every run on A100-40."""
    with (shared_data() / "llm-foundry" / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == "a100_40gb"]
    return [
        PublishedRun(
            name=f"{row['model']}, {row['gpus']} GPUs, {row['microbatch']} x {row['seq']}",
            card=replace(read_card(f"mpt-{row['model']}"), sequence=int(row["seq"])),
            grid=TrainingGrid(
                data=int(row["gpus"]), zero_stage=3, microbatch=int(row["microbatch"]),
                accumulation=int(row["grad_accum"]),
                recomputation="full" if row["act_ckpt"] == "True" else "none",
            ),
            preset="dgx-a100", stack="llm-foundry-2023-a100", measured_s=float(row["step_s"]),
            family=f"MPT {row['model']}",
        )
        for row in rows
    ]  # fmt: skip


def source() -> Source:
    published = runs()
    first = next(each for each in published if each.card.sequence == read_card(each.card.name).sequence)
    return Source(
        title="MPT under FSDP on 8 to 128 A100-40 (llm-foundry)",
        method="By the stack `llm-foundry-2023-a100`. Which attention the runs had is not in their table: long "
        "sequences say FlashAttention 1, whose share of the peak is its paper's. Runs differ in card, sequence, "
        "devices, micro-batch and recomputation.",
        steps=all_predicted(published),
        commands=first.command,
        calibrated="the rate of products beside other kernels, on the 8-GPU runs of 7b, 1b and 125m",
        not_expressed={},
    )
