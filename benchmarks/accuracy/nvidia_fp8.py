"""NVIDIA's pre-training of 2024 and 2025 in 8 bits, and of mixtures in 16: NeMo and Megatron-Bridge on H100 to GB200.

Figures: NVIDIA NeMo 24.07, docs/source/performance/performance_summary.md, commit 070a0bb, and NVIDIA-NeMo
Megatron-Bridge 25.11, docs/performance-summary.md, commit 00b7660, Apache-2.0.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

PRESETS = {"h100": "dgx-h100", "b200": "dgx-b200", "gb200": "gb200-nvl72"}
FITTED = ("llama3-8b", "b200")
"""The network and the GPU whose steps say how fast products of 8 bits are on Blackwell."""


def _run(
    gpu: str, model: str, gpus: int, precision: str, batch: int, microbatch: int, sequence: int, tokens_per_s: float,
    *, tensor: int = 1, pipeline: int = 1, context: int = 1, chunks: int = 1, expert: int = 1, zero_stage: int = 1,
) -> PublishedRun:  # fmt: skip
    """tokens_per_s: of one GPU."""
    card, data = replace(read_card(model), sequence=sequence), gpus // (tensor * pipeline * context)
    grid = TrainingGrid(
        data=data, tensor=tensor, pipeline=pipeline, context=context, chunks=chunks, expert=expert,
        expert_tensor=1 if expert > 1 and tensor > 1 else 0, zero_stage=zero_stage, microbatch=microbatch,
        accumulation=batch // (data * microbatch),
    )  # fmt: skip
    split = f"{data} x tensor {tensor} x pipeline {pipeline}" + (f" x context {context}" if context > 1 else "")
    split += f", experts over {expert}" if expert > 1 else ""
    family = "mixtures" if card.routing else "Hopper" if gpu == "h100" else "Blackwell"
    return PublishedRun(
        name=f"{model} on {gpus} {gpu.upper()}, {split}, {precision}", card=card, grid=grid, preset=PRESETS[gpu],
        stack="megatron-a100", precision=None if precision == "bf16" else precision, family=family,
        measured_s=batch * sequence / tokens_per_s / gpus, note="calibrated on" if (model, gpu) == FITTED else "",
    )  # fmt: skip


def runs() -> list[PublishedRun]:
    """Every run of a network that has a card on GPUs that have a preset."""
    return [
        _run("h100", "gpt3-175b", 128, "fp8", 256, 1, 2048, 726, tensor=4, pipeline=8, chunks=6),
        _run("h100", "gpt3-175b", 512, "fp8", 2048, 2, 2048, 782, tensor=4, pipeline=8, chunks=6),
        _run("h100", "llama2-7b", 8, "fp8", 128, 1, 4096, 16_847),
        _run("h100", "llama2-13b", 16, "fp8", 128, 1, 4096, 8646, pipeline=4, chunks=10),
        _run("h100", "llama2-70b", 64, "fp8", 128, 1, 4096, 1707, tensor=4, pipeline=4, chunks=20),
        _run("h100", "nemotron4-340b", 128, "fp8", 32, 1, 4096, 322, tensor=8, pipeline=8, chunks=12),
        _run("h100", "llama3-8b", 8, "fp8", 128, 1, 8192, 12_036, context=2),
        _run("h100", "llama3-70b", 64, "fp8", 128, 1, 8192, 1533, tensor=4, pipeline=4, context=2, chunks=5),
        _run("h100", "llama3-8b", 8, "fp8", 128, 1, 8192, 14_451, zero_stage=3),
        _run("h100", "llama3-70b", 64, "fp8", 128, 1, 8192, 1602, tensor=4, pipeline=8, chunks=5),
        _run("h100", "llama3-405b", 1024, "fp8", 512, 1, 8192, 292, tensor=8, pipeline=8, context=2, chunks=8),
        _run("h100", "gpt-oss-120b", 64, "bf16", 512, 4, 4096, 5630, pipeline=4, expert=8),
        _run("h100", "qwen3-30b-a3b", 16, "fp8", 512, 2, 4096, 5275, pipeline=2, chunks=24, expert=8),
        _run("h100", "qwen3-235b-a22b", 256, "fp8", 8192, 1, 4096, 1575, tensor=2, pipeline=8, chunks=4, expert=32),
        _run("b200", "llama3-8b", 8, "fp8", 128, 2, 8192, 30_624),
        _run("b200", "llama3-8b", 8, "mxfp8", 128, 2, 8192, 29_521),
        _run("b200", "llama3-405b", 128, "fp8", 64, 1, 8192, 661, tensor=4, pipeline=8, context=2, chunks=8),
        _run("b200", "llama3-405b", 128, "mxfp8", 64, 1, 8192, 624, tensor=4, pipeline=8, context=2, chunks=8),
        _run("b200", "deepseek-v3", 256, "mxfp8", 2048, 1, 4096, 2139, pipeline=16, expert=8),
        _run("b200", "gpt-oss-120b", 64, "bf16", 512, 4, 4096, 8213, expert=8),
        _run("b200", "qwen3-30b-a3b", 8, "mxfp8", 512, 1, 4096, 9299, expert=8),
        _run("b200", "qwen3-235b-a22b", 64, "mxfp8", 1024, 1, 4096, 3269, pipeline=8, chunks=2, expert=8),
        _run("gb200", "llama3-8b", 8, "fp8", 128, 2, 8192, 31_508),
        _run("gb200", "llama3-8b", 8, "mxfp8", 128, 2, 8192, 29_789),
        _run("gb200", "llama3-405b", 256, "fp8", 1536, 1, 8192, 813, tensor=4, pipeline=16, chunks=4),
        _run("gb200", "deepseek-v3", 256, "bf16", 4096, 1, 4096, 3139, pipeline=4, chunks=4, expert=64),
        _run("gb200", "deepseek-v3", 256, "mxfp8", 4096, 1, 4096, 4018, pipeline=8, chunks=4, expert=32),
        _run("gb200", "gpt-oss-120b", 64, "bf16", 1280, 1, 8192, 15_876, expert=64),
        _run("gb200", "qwen3-30b-a3b", 8, "mxfp8", 512, 4, 4096, 23_766, expert=8),
        _run("gb200", "qwen3-235b-a22b", 256, "bf16", 8192, 1, 4096, 4916, pipeline=8, chunks=3, expert=32),
    ]


def source() -> Source:
    published = runs()
    steps = [replace(step, fit="", counted=not step.note) for step in all_predicted(published)]
    return Source(
        title="Llama, GPT-3, Nemotron and mixtures in 8 and 16 bits on 8 to 1,024 H100, B200 and GB200 (NVIDIA)",
        method="By `megatron-a100`. The tables do not say what is recomputed or kept on the host: nothing is taken to "
        "be, and memory is not judged. Hosts decide where experts are small: their launches are counted too low.",
        steps=steps,
        commands=published[0].command,
        calibrated="how fast products of 8 bits are on Blackwell, on two steps that are not counted",
        not_expressed={
            "networks without a card (GPT-3 5B and 20B, Nemotron 8B and 22B)": 4,
            "Llama 3 70B under FSDP on GB200, which does not fit without what the table leaves out": 1,
            "GB300, without a preset": 9,
        },
    )
