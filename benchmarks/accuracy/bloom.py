"""BigScience's search for a plan of BLOOM: GPT of 181 to 205 billion parameters on 8 to 384 A100-80."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from math import prod

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import shared_data
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid

HEADS, SEQUENCE, VOCABULARY = 64, 2048, 250_880
"""Heads are those of the source's command where its tables are silent."""
TRAP = "TRAP"
"""In the notes of rows whose seconds stand in another column."""
Row = Mapping[str, str]


def runs() -> list[PublishedRun]:
    """Every plan once, as often as it stands in the source's tables."""
    with (shared_data() / "bloom" / "topology.csv").open(newline="", encoding="utf-8") as file:
        rows = {_run(row): row for row in csv.DictReader(file) if _is_said(row)}
    return list(rows)


def _is_said(row: Row) -> bool:
    """Whether degrees and GPUs go together; those without replicas do not say their batch either."""
    degrees = (row["dp"], row["tp"], row["pp"])
    return TRAP not in row["notes"] and all(degrees) and int(row["gpus"]) == prod(map(int, degrees))


def _run(row: Row) -> PublishedRun:
    data, microbatch, hidden = int(row["dp"]), int(row["mbs"]), int(row["hidden"])
    layers = layers_of(row["size"], hidden, int(row["pp"]), int(row["layers"]))
    card = ModelCard(
        name=f"bloom-{row['size'].lower()}", layers=layers, hidden=hidden, heads=HEADS, ffn=4 * hidden,
        vocabulary=VOCABULARY, sequence=SEQUENCE, gated=False, norm_vectors=2, biases=True, embedding_norm=True,
        tied_embeddings=True,
    )  # fmt: skip
    grid = TrainingGrid(
        data=data, tensor=int(row["tp"]), pipeline=int(row["pp"]), zero_stage=int(row["zero"]), microbatch=microbatch,
        accumulation=int(row["gbs"]) // (data * microbatch), recomputation="full", sequence_parallel=False,
    )  # fmt: skip
    return PublishedRun(
        name=f"{row['size']}, {data} x {row['tp']} x {row['pp']}, micro-batch {microbatch}", card=card, grid=grid,
        preset="a100-omnipath", stack="megatron-deepspeed-a100",
        measured_s=float(row["s_per_it"]), family=f"blocks of {hidden}",
    )  # fmt: skip


def layers_of(size: str, hidden: int, stages: int, heading: int) -> int:
    """Blocks of a row: where stages do not divide those of its heading, the source took a number near it that they do,
    and says what size comes of it, of blocks alone or with the embedding."""
    parameters, block = float(size.removesuffix("B")) * 1e9, 12 * hidden**2
    near = [layers for layers in range(heading - stages, heading + stages) if layers % stages == 0]
    sizes = {layers: (layers * block, layers * block + VOCABULARY * hidden) for layers in near}
    return min(near, key=lambda layers: min(abs(parameters - of) for of in sizes[layers]))


def source() -> Source:
    published = runs()
    return Source(
        title="GPT of 181B to 205B on 320 to 384 A100-80, plans of BLOOM's search (BigScience)",
        method="By `megatron-deepspeed-a100` on nodes with four links of 100 Gb/s, of which an all-reduce gave 40 "
        "before the search began (`a100-omnipath`). Heads are taken to be 64, so that those of 14,400 channels are 225 "
        "wide: attention without matrix units. Blocks are as many as make the size that stands beside a plan. Three "
        "trial runs of six and ten blocks on one node, which stand beside the tables, took 15 to 26 % longer than "
        "predicted: what is missing is compute. CUDA waited for every kernel, for which nothing stands here.",
        steps=all_predicted(published),
        commands=published[0].command,
        not_expressed={"rows whose seconds, batch or GPUs contradict their plan": 6},
        calibrated="that heads of an odd width run without matrix units was found in them",
        noise_floor="the same plan repeated within a day differs by 1 %, within a week by 6 %",
    )
