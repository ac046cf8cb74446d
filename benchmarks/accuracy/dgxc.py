"""NVIDIA's own steps of Llama 3.1 8B and 70B on H100 (DGX cloud benchmarks)."""

from __future__ import annotations

import csv

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.published import shared_data
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid


def _rows() -> list[dict[str, str]]:
    with (shared_data() / "dgxc" / "steps.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def runs() -> list[PublishedRun]:
    """Every run whose stages are not interleaved."""
    return [
        PublishedRun(
            name=f"{row['model'].split()[2]} on {row['gpus']} GPUs",
            card=read_card(f"llama3-{row['model'].split()[2]}"),
            grid=TrainingGrid(
                data=int(row["dp"]), tensor=int(row["tp"]), pipeline=int(row["pp"]), context=int(row["cp"]),
                microbatch=int(row["mbs"]), accumulation=int(row["ga"]), zero_stage=1,
            ),
            preset="dgx-h100", stack="megatron-a100", measured_s=float(row["step_s"]),
        )
        for row in _rows()
        if row["vp"] == "NA"
    ]  # fmt: skip


def source() -> Source:
    published, interleaved = runs(), sum(row["vp"] != "NA" for row in _rows())
    return Source(
        title="Llama 3.1 8B on 8 to 128 H100 (NVIDIA's DGX cloud benchmarks)",
        method="By `megatron-a100`, whose runtime is that of NeMo and whose shares of the peak are of another GPU.",
        steps=all_predicted(published),
        commands=published[0].command,
        not_expressed={"runs of the 70B, whose stages are interleaved five times": interleaved},
        noise_floor="runs of the same network on more GPUs differ by 0.5 % at most",
    )
