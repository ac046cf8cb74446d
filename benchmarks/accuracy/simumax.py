"""Blocks of Llama 3 and DeepSeek on 8 B200 under Megatron-LM, measured by SimuMax's authors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.pages.published import GIB, shared_data
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

GPUS = 8
CARDS = {
    "llama3-70b": "llama3-70b",
    "llama3-405b": "llama3-405b",
    "deepseekv3": "deepseek-v3",
    "deepseekv2": "deepseek-v2",
}


def runs() -> list[PublishedRun]:
    """Every row at hand."""
    text = (shared_data() / "simumax" / "b200_steps_visible.json").read_text(encoding="utf-8")
    return [_run(row) for row in json.loads(text)["rows"]]


def _run(row: Mapping[str, Any]) -> PublishedRun:
    card = read_card(CARDS[row["model"]])
    long = re.search(r"seq(\d+)", row["case"])
    card = replace(card, layers=row["layer_num"], sequence=int(long[1]) if long else 4096)
    card = replace(card, dense_layers=min(card.dense_layers, 1))
    degrees = {name: int(count) for name, count in re.findall(r"(tp|pp|cp|ep)(\d+)", row["parallel"])}
    tensor, pipeline, context = (degrees.get(name, 1) for name in ("tp", "pp", "cp"))
    grid = TrainingGrid(
        data=GPUS // (tensor * pipeline * context), tensor=tensor, pipeline=pipeline, context=context,
        expert=degrees.get("ep", 1), zero_stage=1, accumulation=row["mbc"],
    )  # fmt: skip
    return PublishedRun(
        name=row["case"].removesuffix("_cef"), card=card, grid=grid, preset="dgx-b200", stack="megatron-a100",
        measured_s=row["real_ms"] / 1e3, peak_bytes=row["real_alloc_gib"] * GIB,
        peak_device=_fullest(row["peak_memory_by_rank_mb"]), family=row["model"],
    )  # fmt: skip


def _fullest(peaks: Mapping[str, Mapping[str, float]]) -> int:
    """The rank whose peak the row has."""
    return int(max(peaks, key=lambda rank: peaks[rank]["max_allocated_mb"]))


def source() -> Source:
    published = runs()
    return Source(
        title="Blocks of Llama 3 and DeepSeek on 8 B200 (SimuMax)",
        method="By `megatron-a100` on another GPU, whose long products sustain a tenth less than SimuMax's own table "
        "says, as those of an H100 do in steps. Cards with fewer blocks than the networks have.",
        steps=all_predicted(published),
        calibrated="what products sustain on this GPU, by tables of the same authors",
        commands="",
        not_expressed={},
    )
