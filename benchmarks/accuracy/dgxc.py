"""NVIDIA's Llama 3.1 steps on 8 to 2,048 H100, by the stack of the same runtime."""

from __future__ import annotations

import csv

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import shared_data
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid


def runs() -> list[PublishedRun]:
    """Every run; vp: virtual stages of a GPU."""
    with (shared_data() / "dgxc" / "steps.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        PublishedRun(
            name=f"{row['model'].split()[2]} on {row['gpus']} GPUs",
            card=read_card(f"llama3-{row['model'].split()[2]}"),
            grid=TrainingGrid(
                data=int(row["dp"]), tensor=int(row["tp"]), pipeline=int(row["pp"]), context=int(row["cp"]),
                microbatch=int(row["mbs"]), accumulation=int(row["ga"]), zero_stage=1,
                chunks=1 if row["vp"] == "NA" else int(row["vp"]),
            ),
            preset="dgx-h100", stack="nemo-h100", measured_s=float(row["step_s"]),
            family=f"Llama 3.1 {row['model'].split()[2]}",
        )
        for row in rows
    ]  # fmt: skip


def source() -> Source:
    published = runs()
    return Source(
        title="Llama 3.1 8B and 70B on 8 to 2,048 H100 (NVIDIA's DGX cloud benchmarks)",
        method="By `nemo-h100`, as its configurations have it.",
        steps=all_predicted(published),
        commands=published[0].command,
        not_expressed={},
        calibrated="what products sustain on an H100, one number",
        noise_floor="runs of the same network on more GPUs differ by 0.5 % at most",
    )
