"""Peak memory of GPT in Megatron-LM's functional tests, from published closed forms and the recipe of its optimizer."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.accuracy._activations import gelu_block_bytes
from benchmarks.accuracy._source import Source
from benchmarks.accuracy._steps import PredictedStep
from benchmarks.published import shared_data

VOCABULARY, PADDED_TO = 50257, 128
"""GPT-2's, padded to a multiple for every tensor rank, as Megatron-LM does."""
STATE_BYTES, MASTER_BYTES = 6, 12
"""bf16 weight and fp32 gradient; fp32 weight and two moments, which the distributed optimizer shares."""
WORKSPACE_BYTES = 100e6
"""Libraries' workspaces: the median of what these runs hold between steps (not at the peak) above their states."""
LOGIT_BYTES = 6
"""bf16 logits and their fp32 copy, which the loss turns into the gradient in place."""
GPUS = 8
OLD_SOFTWARE = "dracooci"
"""In the name of recordings whose software is that old. The names do not say so: that they are is seen in their peaks,
of which those in deterministic mode have room for the scores and the others not."""
DEFERRED = "defer_embedding_wgrad_compute"
"""In the name of tests that multiply out the head's weight gradients after the last micro-batch."""
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPeak:
    """Bytes of the last rank, predicted with an attention that keeps no scores and with one that does.

    stated: whether the test says which of them it takes; keeps_scores: which, as it says or as its software chooses.
    """

    name: str
    without_bytes: float
    with_bytes: float
    measured_bytes: float
    stated: bool
    keeps_scores: bool

    @property
    def error(self) -> float:
        return (self.with_bytes if self.keeps_scores else self.without_bytes) / self.measured_bytes - 1

    @property
    def nearer_error(self) -> float:
        errors = (self.with_bytes / self.measured_bytes - 1, self.without_bytes / self.measured_bytes - 1)
        return min(errors, key=abs)


def predicted_peaks() -> list[PredictedPeak]:
    """Every training test of a dense GPT whose sizes and degrees are stated, of equal stages on 8 GPUs."""
    with (shared_data() / "megatron-golden" / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        PredictedPeak(
            name=row["golden"], without_bytes=_peak_bytes(row, scores=False), with_bytes=_peak_bytes(row, scores=True),
            measured_bytes=float(row["mem_max_alloc_bytes"]), stated=states is not None,
            keeps_scores=_falls_back(row) if states is None else states,
        )
        for row in rows
        if row["golden"].startswith("gpt/") and row["mem_max_alloc_bytes"] and _is_stated(row)
        for states in [_keeps_scores(row)]
    ]  # fmt: skip


def _is_stated(row: Row) -> bool:
    """Whether the closed forms' sizes are in the row: 1,024 positions, all heads with keys, one kind of block."""
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


def _peak_bytes(row: Row, *, scores: bool) -> float:
    """Of the last stage, which the tests record: its states, the blocks' activations in flight and the logits."""
    tensor, pipeline = _number(row, "tensor-model-parallel-size"), _number(row, "pipeline-model-parallel-size")
    context, samples = _number(row, "context-parallel-size"), _number(row, "micro-batch-size")
    hidden, layers = _number(row, "hidden-size"), _number(row, "num-layers") // pipeline
    padded = -(-VOCABULARY // (PADDED_TO * tensor)) * PADDED_TO * tensor
    matrices = 12 * hidden**2 * layers + padded * hidden  # the head's table is the embedding's
    parameters = matrices / tensor + 13 * hidden * layers
    replicas = GPUS // (tensor * pipeline)
    shared = replicas if row["use-distributed-optimizer"] else 1
    states = parameters * (STATE_BYTES + MASTER_BYTES / shared)
    if row["data-parallel-sharding-strategy"] == "optim_grads_params":
        states = parameters * (STATE_BYTES + MASTER_BYTES) / replicas
    tokens = samples * 1024 / context
    logits = LOGIT_BYTES * tokens * padded / tensor
    if DEFERRED in row["golden"]:  # until then the head's inputs and the gradients of its logits stay, in bf16
        earlier = int(row["global-batch-size"]) // (samples * replicas // context) - 1
        logits += earlier * 2 * tokens * (hidden + padded / tensor)
    return states + WORKSPACE_BYTES + _kept_bytes(row, layers, scores) + logits


def _kept_bytes(row: Row, layers: int, scores: bool) -> float:
    """Activations of the last stage: one micro-batch, or as many chunks as interleaved 1F1B warms up with."""
    tensor, pipeline = _number(row, "tensor-model-parallel-size"), _number(row, "pipeline-model-parallel-size")
    context, samples = _number(row, "context-parallel-size"), _number(row, "micro-batch-size")
    full = row["recompute-granularity"] == "full"
    block = gelu_block_bytes(
        1024 // context, samples, _number(row, "hidden-size"), _number(row, "num-attention-heads"), tensor=tensor,
        sequence_parallel=bool(row["sequence-parallel"]),
        # an attention that keeps no scores holds what "selective" does of the stored ones
        recomputation="full" if full else "none" if scores else "selective",
    )  # fmt: skip
    chunk = int(row["num-layers-per-virtual-pipeline-stage"] or layers)
    chunks = layers // chunk
    return block * chunk * ((chunks - 1) * pipeline + 1 if chunks > 1 else 1)


def source() -> Source:
    peaks = predicted_peaks()
    return Source(
        title="Peak memory of GPT in Megatron-LM's functional tests (NVIDIA)",
        method="Bytes of the last rank of 8 GPUs.",
        steps=[
            PredictedStep(
                name=p.name,
                peak_bytes=p.with_bytes if p.keeps_scores else p.without_bytes,
                measured_peak_bytes=p.measured_bytes,
                family="stated" if p.stated else "not stated",
            )
            for p in peaks
        ],
        not_expressed={},
        noise_floor="repeats of a test differ by 0.12 % (median); tests of other ages by up to 4 %",
    )
