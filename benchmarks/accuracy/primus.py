"""Primus: Llama 2 7B in eight stages on MI300X, by schedule."""

from __future__ import annotations

import csv

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import shared_data
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

MICROBATCHES = 32
"""Not said; as many suit the speed-up by interleaving, (m + 7) / (m + 3.5)."""
NAMES = {"zbv": "zb-v", "1f1b": "", "interleaved": ""}
"""Schedules of ours by theirs, where they differ or are what so many chunks take anyway."""
TURNING = ("zb-v", "v-half", "v-min")
"""Two stages of a device in a V, which the schedule implies."""


def runs() -> list[PublishedRun]:
    """All schedules of the dense model."""
    with (shared_data() / "primus" / "pipeline_schedules.csv").open(newline="", encoding="utf-8") as file:
        return [_run(row) for row in csv.DictReader(file)]


def _run(row: dict[str, str]) -> PublishedRun:
    card, theirs, gpus = read_card("llama2-7b"), row["schedule"], int(row["gpus"])
    schedule = NAMES.get(theirs, theirs)
    grid = TrainingGrid(
        pipeline=gpus, accumulation=MICROBATCHES, schedule=schedule,
        chunks=2 if theirs == "interleaved" or schedule in TURNING else 1,
    )  # fmt: skip
    return PublishedRun(
        name=theirs, card=card, grid=grid, preset="mi300x",
        measured_s=MICROBATCHES * card.sequence / (float(row["tokens_per_s_per_gpu"]) * gpus), stack="megatron-a100",
    )  # fmt: skip


def source() -> Source:
    published = runs()
    return Source(
        title="Llama 2 7B in eight stages on MI300X, by schedule (AMD Primus)",
        method="By `megatron-a100` on the data sheet of an MI300X. The source says neither micro-batches nor what is "
        "recomputed: 32 of one sequence are assumed, and its peaks are left out.",
        steps=all_predicted(published),
        calibrated="the number of micro-batches, by the second row over the first",
        commands=published[-1].command,
        not_expressed={},
    )
