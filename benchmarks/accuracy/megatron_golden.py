"""Peak memory of GPT in Megatron-LM's functional tests: each a card and a grid, simulated by `megatron-a100`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks.accuracy._source import Source
from benchmarks.accuracy._steps import PredictedStep
from benchmarks.pages.published import shared_data
from partitioners._grids.grid_plan import grid_plan, simulate_options
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import read_stack, stack_for
from simulator.network.catalogue import read_preset
from simulator.run import step_report

PRESET, STACK = "dgx-a100", "megatron-a100"
VOCABULARY, PADDED_TO = 50257, 128
"""GPT-2's, padded to a multiple for every tensor rank, as Megatron-LM does."""
GPUS = 8
OLD_SOFTWARE = "dracooci"
"""In the name of recordings whose software is that old. The names do not say so: that they are is seen in their peaks,
of which those in deterministic mode have room for the scores and the others not."""
DEFERRED = "defer_embedding_wgrad_compute"
"""In the name of tests that multiply out the head's weight gradients after the last micro-batch, as no plan says."""
Row = Mapping[str, str]


def stated_rows() -> list[Row]:
    """The tests, also those that no plan says."""
    with (shared_data() / "megatron-golden" / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row["golden"].startswith("gpt/") and row["mem_max_alloc_bytes"] and _is_stated(row)]


def _is_stated(row: Row) -> bool:
    """Whether card and grid are in the row: 1,024 positions, all heads with keys, one kind of block."""
    sizes = ("num-layers", "hidden-size", "num-attention-heads", "micro-batch-size", "pipeline-model-parallel-size")
    plain = not any(row[name] for name in ("num-experts", "num-query-groups", "fp8-format", "vocab-size"))
    other = any(word in row["golden"] for word in ("inference", "grpo", "uneven", "account_for"))
    known = all(row[name] for name in sizes) and row["seq-length"] == "1024" and row["bf16"] == "true"
    return known and plain and not other


def _keeps_scores(row: Row) -> bool | None:
    """Whether attention stores its scores: as the test asks for, and where Megatron's own blocks are taken instead of
    Transformer Engine's; None where neither is said."""
    if row["attention-backend"]:
        return row["attention-backend"] == "unfused"
    return None if "_te_" in row["golden"] else True


def _falls_back(row: Row) -> bool:
    """Whether Transformer Engine finds no attention without scores: in deterministic mode none was, before version
    2.4.1 of FlashAttention (pull request 366 of Transformer Engine; NVIDIA's containers to the beginning of 2024)."""
    return row["deterministic-mode"] == "true" and OLD_SOFTWARE in row["golden"]


def _number(row: Row, name: str) -> int:
    return int(row[name] or 1)


def card_of(row: Row) -> ModelCard:
    """The network of a row, with dropout as Megatron-LM has it where nobody says otherwise."""
    tensor, hidden = _number(row, "tensor-model-parallel-size"), _number(row, "hidden-size")
    padded = -(-VOCABULARY // (PADDED_TO * tensor)) * PADDED_TO * tensor
    return ModelCard(
        name="gpt", layers=_number(row, "num-layers"), hidden=hidden, heads=_number(row, "num-attention-heads"),
        ffn=4 * hidden, vocabulary=padded, sequence=1024, gated=False, norm_vectors=2, biases=True,
        tied_embeddings=True, positions=1024, dropout=True,
    )  # fmt: skip


def grid_of(row: Row) -> TrainingGrid:
    """The plan of a row."""
    tensor, pipeline = _number(row, "tensor-model-parallel-size"), _number(row, "pipeline-model-parallel-size")
    context, samples = _number(row, "context-parallel-size"), _number(row, "micro-batch-size")
    data = GPUS // (tensor * pipeline * context)
    blocks, chunk = _number(row, "num-layers") // pipeline, row["num-layers-per-virtual-pipeline-stage"]
    shares_all = row["data-parallel-sharding-strategy"] == "optim_grads_params"
    return TrainingGrid(
        data=data, tensor=tensor, pipeline=pipeline, context=context, microbatch=samples,
        accumulation=int(row["global-batch-size"]) // (samples * data), chunks=blocks // int(chunk) if chunk else 1,
        zero_stage=3 if shares_all else 1 if row["use-distributed-optimizer"] else 0,
        sequence_parallel=bool(row["sequence-parallel"]),
        recomputation="full" if row["recompute-granularity"] == "full" else "none",
    )  # fmt: skip


def predicted_peak(row: Row) -> PredictedStep:
    """Of the last device, which the tests record."""
    states = _keeps_scores(row)
    family = "as software chooses" if states is None else "attention is stated"
    known: dict[str, Any] = {"name": row["golden"], "family": family}
    measured = float(row["mem_max_alloc_bytes"])
    if DEFERRED in row["golden"]:
        note = "refused: defers the head's weight gradients to the end of a step"
        return PredictedStep(**known, measured_peak_bytes=measured, counted=False, note=note)
    scores = _falls_back(row) if states is None else states
    peak_bytes = _simulated_bytes(card_of(row), grid_of(row), scores)
    return PredictedStep(**known, measured_peak_bytes=measured, peak_bytes=peak_bytes)


@cache
def _simulated_bytes(card: ModelCard, grid: TrainingGrid, scores: bool) -> float:
    cluster = read_preset(PRESET).build(GPUS)
    stack = read_stack(STACK)
    kernel = replace(stack.device, attention_kernel="scores") if scores else stack.device
    stack = stack_for(cluster, replace(stack, device=kernel))
    profile = modelled_profile(card, stack, batch_size=grid.microbatch)
    plan = grid_plan(grid, profile, cluster, stack)
    return step_report(profile, cluster, plan, runtime=stack.runtime).devices[-1].peak_memory_bytes


def source() -> Source:
    rows = stated_rows()
    steps = [predicted_peak(row) for row in rows]
    plain = next(row for row in rows if _keeps_scores(row) is None)
    machine = f"--cluster {PRESET} --devices {GPUS}"
    simulated = f"shardscope simulate profile.json {machine} {simulate_options(grid_of(plain))}"
    return Source(
        title="Peak memory of GPT in Megatron-LM's functional tests (NVIDIA)",
        method=f"""Bytes of the last rank of {GPUS} GPUs (A100, H100, GB200), by card and grid of each test and the
stack `{STACK}`. Dense networks of equal stages, interleaved or not, that train on 1,024 positions with stated sizes;
whether their attention keeps its scores (`attention_kernel` in a stack's file) is stated, or their blocks are
Megatron-LM's own, which keep them. Others leave that to Transformer Engine, which keeps scores where a deterministic
step meets software of before 2024; which recordings are so old is seen in their peaks, one fact taken from what is
compared. Another is 100 MB of libraries' workspaces, the median of what these tests hold between steps, not at the
peak.""",
        steps=steps,
        calibrated="how old their software is, and workspaces",
        commands=f"shardscope model gpt.yaml --stack {STACK} --batch-size 4 --output profile.json\n{simulated}",
        not_expressed={"tests, which defer the head's weight gradients": sum(not each.counted for each in steps)},
        noise_floor="repeats of a test differ by 0.12 % (median); tests of other ages by up to 4 %",
    )
