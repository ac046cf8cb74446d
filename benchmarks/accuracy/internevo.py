"""InternLM's 7B on 8 to 1,024 A100 under InternEvo: ZeRO-1 over all replicas, and over groups of eight."""

from __future__ import annotations

import csv
from dataclasses import replace

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import shared_data
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

VOCABULARY = 103_168
"""InternLM's; the other sizes are those of Llama 2 7B."""


def runs() -> list[PublishedRun]:
    """Every run."""
    with (shared_data() / "internevo" / "throughput_7b.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [_run(row) for row in rows]


def _run(row: dict[str, str]) -> PublishedRun:
    card = replace(read_card("llama2-7b"), vocabulary=VOCABULARY, sequence=int(row["sequence"]))
    whole, gpus = row["zero1_group"] == "all", int(row["gpus"])
    grid = TrainingGrid(
        data=gpus, zero_stage=1, shard_group=0 if whole else int(row["zero1_group"]),
        microbatch=int(row["micro_batch"]), accumulation=int(row["micro_batches"]),
    )  # fmt: skip
    tokens = grid.microbatch * grid.accumulation * card.sequence
    return PublishedRun(
        name=f"ZeRO-1 over {'all' if whole else 'groups of ' + row['zero1_group']}, {gpus} GPUs", card=card, grid=grid,
        preset="dgx-a100-80", bandwidth="inter=400Gbps", stack="llm-foundry-2023-a100",
        measured_s=tokens / float(row["tokens_per_s_per_gpu"]),
        family=f"over {'all replicas' if whole else 'groups of ' + row['zero1_group']}",
    )  # fmt: skip


def source() -> Source:
    published = runs()
    return Source(
        title="InternLM 7B on 8 to 1,024 A100-80 (InternEvo)",
        method="By `llm-foundry-2023-a100`, whose kernels are those of 2023: FlashAttention 1, the rest eager; of a "
        "card like llama2-7b with 103,168 words; nodes of eight with four links of 100 Gb/s.",
        steps=all_predicted(published),
        commands=published[0].command,
        not_expressed={},
    )
