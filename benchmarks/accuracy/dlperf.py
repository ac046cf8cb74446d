"""DLPerf: GPT under Megatron-LM of 2021 on 1 to 32 V100-16, by data or tensor parallelism across nodes."""

from __future__ import annotations

import csv
from collections.abc import Mapping

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import shared_data
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid

HEADS = {768: 12, 1536: 16, 2304: 24, 3072: 32}
"""By width, of the source's table of cases."""
SEQUENCE, VOCABULARY = 2048, 50_257


def runs() -> list[PublishedRun]:
    """All of them, activations recomputed as the source's scripts have it."""
    with (shared_data() / "dlperf" / "gpt_megatron_v100.csv").open(newline="", encoding="utf-8") as file:
        return [_run(row) for row in csv.DictReader(file)]


def _run(row: Mapping[str, str]) -> PublishedRun:
    hidden, data, batch = (int(row[name]) for name in ("hidden", "dp", "global_batch"))
    card = ModelCard(
        name=f"gpt-{row['layers']}x{hidden}", layers=int(row["layers"]), hidden=hidden, heads=HEADS[hidden],
        ffn=4 * hidden, vocabulary=VOCABULARY, sequence=SEQUENCE, gated=False, norm_vectors=2, biases=True,
        tied_embeddings=True,
    )  # fmt: skip
    grid = TrainingGrid(
        data=data, tensor=int(row["tp"]), pipeline=int(row["pp"]), microbatch=batch // data, recomputation="full",
        sequence_parallel=False,
    )  # fmt: skip
    return PublishedRun(
        name=f"{row['layers']} blocks of {hidden}, {data} x {row['tp']} x {row['pp']}, batch {batch}", card=card,
        grid=grid, preset="p3-16xlarge", bandwidth="inter=100Gbps", stack="megatron-2021-a100",
        measured_s=batch / float(row["sequences_per_s"]),
        family="tensor parallelism" if grid.tensor > 1 else "data parallelism",
    )  # fmt: skip


def source() -> Source:
    published = runs()
    return Source(
        title="GPT on 1 to 32 V100-16 under Megatron-LM of 2021 (OneFlow DLPerf)",
        method="By `megatron-2021-a100` on a V100's data sheet and machines with one card of 100 Gb/s, of which the "
        "share is taken that Ethernet gives. Micro-batches are whole batches of a replica, and everything is "
        "recomputed, as in the source's scripts.",
        steps=all_predicted(published),
        commands=published[-1].command,
        not_expressed={},
    )
