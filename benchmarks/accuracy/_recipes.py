"""Runs of Megatron's recipes as rows of a table: a network, its split, and how a step is made."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from partitioners._stages.block_layout import named_blocks
from simulator.language_models.card_files import read_card
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid

PRESETS = {
    "h100": "dgx-h100", "h200": "dgx-h200", "b200": "dgx-b200", "b300": "dgx-b300", "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
}  # fmt: skip


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def recipe(row: dict[str, str]) -> tuple[ModelCard, TrainingGrid]:
    """The network of a row, as long as its layout says, and its plan."""
    number = {name: int(value) for name, value in row.items() if value.isdecimal()}
    tensor, pipeline, context, expert = (number[name] for name in ("tensor", "pipeline", "context", "expert"))
    card = replace(read_card(row["network"]), sequence=number["sequence"])
    data = number["gpus"] // (tensor * pipeline * context)
    blocks = row["layout"] and sum(named_blocks(row["layout"]))  # the last predicts a further token of DeepSeek-V3
    grid = TrainingGrid(
        data=data, tensor=tensor, pipeline=pipeline, context=context, chunks=number["chunks"], expert=expert,
        expert_tensor=1 if expert > 1 and tensor > 1 else 0, zero_stage=number["zero_stage"],
        microbatch=number["microbatch"], accumulation=number["batch"] // (data * number["microbatch"]),
        recomputation=row["recomputation"], layout=row["layout"], schedule=row.get("schedule", ""),
    )  # fmt: skip
    further = blocks - card.layers if blocks else 0
    return replace(card, layers=card.layers + further, next_tokens=further), grid


def named(row: dict[str, str], card: ModelCard, grid: TrainingGrid) -> str:
    """The run, such as "llama3-8b on 8 H100, replicas, batch 128"."""
    split = ", ".join(f"{name} {count}" for name, count in grid.degrees.items() if name != "data") or "replicas"
    return f"{card.name} on {row['gpus']} {row['gpu'].upper()}, {split}, batch {row['batch']}"
