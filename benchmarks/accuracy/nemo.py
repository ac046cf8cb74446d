"""NVIDIA's pre-training from 2024 to 2026: NeMo and Megatron-Bridge on H100 to GB300.

`nemo_runs.csv` has them: NVIDIA NeMo 24.07, docs/source/performance/performance_summary.md, commit 070a0bb, and
NVIDIA-NeMo Megatron-Bridge, docs/performance-summary.md of 25.11, commit 00b7660, and of 26.02 to 26.08 with the page's
archive, commit 067f987, Apache-2.0; schedules, layouts, recomputation and dispatchers as its recipes of the same
releases have them (scripts/performance/configs, src/megatron/bridge/perf_recipes); DeepSeek-V3's plan on B200 of
26.04.01 is one of 26.06's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import median

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._recipes import PRESETS, named, recipe, rows
from benchmarks.accuracy._source import Source

RUNS = Path(__file__).parent / "nemo_runs.csv"
FITTED = ("llama3-8b on 8 B200", "llama3-8b on 8 GB300")
"""Whose steps say how fast products of 8 bits are on Blackwell, and that power does not limit a GB300."""


def _run(row: dict[str, str]) -> PublishedRun:
    card, grid = recipe(row)
    name = f"{card.name} on {row['gpus']} {row['gpu'].upper()}"
    return PublishedRun(
        name=f"{named(row, card, grid)}, {row['precision']}, {row['release']}", grid=grid, card=card,
        preset=PRESETS[row["gpu"]], precision=None if row["precision"] == "bf16" else row["precision"],
        setting=f", {row['release']}", stack=_stack(row),
        family=_family(row), software=_family(row),
        measured_s=grid.batch * card.sequence / int(row["tokens_per_s"]) / int(row["gpus"]),
        note="calibrated on" if name in FITTED and row["release"] == "25.11" else "",
    )  # fmt: skip


def _stack(row: dict[str, str]) -> str:
    if row["dispatcher"] == "alltoall":
        return "megatron-a100"
    return "nemo-fused-h100" if row["fused"] else "nemo-h100"


def _family(row: dict[str, str]) -> str:
    if not row["dispatcher"]:
        return "dense, Hopper" if row["gpu"] == "h100" else "dense, Blackwell"
    if row["dispatcher"] == "alltoall":
        return "mixtures by all-to-all"
    return f"mixtures by DeepEP{', fused experts' if row['fused'] else ''}"


def runs() -> list[PublishedRun]:
    """Every run of a network that has a card."""
    return [_run(row) for row in rows(RUNS)]


def _noise_floor(published: Sequence[PublishedRun]) -> str:
    """Of plans that several releases ran."""
    by_plan = groupby(sorted(published, key=_plan), key=_plan)
    steps = [[run.measured_s or 0.0 for run in runs] for _, runs in by_plan]
    spans = sorted(max(each) / min(each) - 1 for each in steps if len(each) > 1)
    return (
        f"{len(spans)} plans were run by several releases, whose slowest takes {median(spans):.1%} longer than the "
        f"fastest at the median, {spans[-1]:.0%} at most"
    )


def _plan(run: PublishedRun) -> str:
    return run.name.rpartition(",")[0] + repr(run.grid)


def source() -> Source:
    published = runs()
    return Source(
        title="Llama, GPT-3, Nemotron and mixtures in 8 and 16 bits on 8 to 1,024 H100 to GB300 (NVIDIA NeMo)",
        method="By `nemo-h100`, as recipes of the same releases have it; mixtures whose tokens go by NCCL's all-to-all "
        "by `megatron-a100`. DeepSeek-V3 predicts a second token by its last block (`next_tokens`). Memory is not "
        "judged. Hosts decide where experts are small: their launches are counted too low. Recipes on Blackwell "
        "from release 26.06 on fuse what experts do (`nemo-fused-h100`), and put whole steps into one CUDA graph.",
        steps=[replace(step, fit="", counted=not step.note) for step in all_predicted(published)],
        commands=published[0].command,
        calibrated="how fast products of 8 bits are on B200 and GB300, on four steps that are not counted",
        noise_floor=_noise_floor(published),
        not_expressed={
            "networks without a card (GPT-3 5B and 20B, Nemotron 8B and 22B, hybrids, DeepSeek-V4)": 59,
            "NVFP4": 18,
            "Llama 3 70B under FSDP, whose activations are kept on hosts": 10,
            "Kimi K2 by Muon": 4,
        },
    )
