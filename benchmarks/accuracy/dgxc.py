"""NVIDIA's Llama 3.1 steps on 8 to 2,048 H100, by the stack of the same runtime."""

from __future__ import annotations

import csv

from benchmarks.accuracy._grids import PublishedRun, predicted, verdicts
from benchmarks.accuracy._steps import steps_table, summary
from benchmarks.published import shared_data
from simulator.language_models.model_card import read_card
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
            preset="dgx-h100", stack="megatron-a100", measured_s=float(row["step_s"]),
        )
        for row in rows
    ]  # fmt: skip


def section() -> str:
    """The section of the page."""
    done = [predicted(run) for run in runs()]
    return f"""## Llama 3.1 8B and 70B on 8 to 2,048 H100 (NVIDIA's DGX cloud benchmarks)

Layers from a model card by `megatron-a100`, whose runtime is that of NeMo and whose shares of the peak are of another
GPU; nothing was fitted to these runs. Stages of the 70B are interleaved five times. The first of them:

    {done[0].run.command}

{steps_table([each.step for each in done])}

{summary([each.step for each in done], "runs of the same network on more GPUs differ by 0.5 % at most")}
{verdicts(done)}"""
