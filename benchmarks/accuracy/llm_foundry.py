"""MosaicML's FSDP runs of MPT on A100-40, by the stack `fsdp-a100`."""

from __future__ import annotations

import csv
import statistics
from dataclasses import replace

from benchmarks.accuracy._grids import PredictedRun, PublishedRun, predicted, verdicts
from benchmarks.accuracy._steps import mean_error, summary, worst_error
from benchmarks.published import shared_data, table
from simulator.language_models.model_card import read_card
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
            preset="dgx-a100", stack="fsdp-a100", measured_s=float(row["step_s"]),
        )
        for row in rows
    ]  # fmt: skip


def section() -> str:
    """The section of the page."""
    done = [predicted(run) for run in runs()]
    groups: dict[str, list[PredictedRun]] = {}
    for each in done:
        groups.setdefault(each.run.name.partition(",")[0], []).append(each)
    rows = []
    for model, group in groups.items():
        steps = [each.step for each in group]
        bias = statistics.fmean(step.error for step in steps)
        rows.append([model, str(len(steps)), f"{mean_error(steps):.1%}", f"{bias:+.1%}", f"{worst_error(steps):+.1%}"])
    first = next(each.run for each in done if each.run.card.sequence == read_card(each.run.card.name).sequence)
    return f"""## MPT under FSDP on 8 to 128 A100-40 (llm-foundry)

Layers from model cards by the stack `fsdp-a100`, the network that of the preset `dgx-a100`. Which attention the
runs had is not in their table: long sequences say FlashAttention 1, whose share of the peak is its paper's. One
constant of the stack, the rate of products beside other kernels, is fitted to the 8-GPU runs of 7b, 1b and 125m alone.
One of the runs:

    {first.command}

The others differ in card, devices, micro-batch and recomputation alone, and those of longer sequences in the card's.

{table(["model", "runs", "mean error", "bias", "worst"], rows)}

{summary([each.step for each in done], "no repeats in the source")}
{verdicts(done)}"""
