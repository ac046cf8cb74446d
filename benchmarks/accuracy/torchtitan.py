"""torchtitan's rows of Llama 3.1 in bf16 and float8: FSDP, tensor and context parallelism on 8 to 256 H100, H200."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from simulator.language_models.accelerators import GIB
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

SPEED = round((500 / 700) ** (1 / 3), 3)
"""Of H100 held to 500 of 700 W: a chip's power is its clock times its voltage squared, and voltage goes with the clock,
so that the clock is the cube root of the power."""


def _run(
    model: str, data: int, microbatch: int, tokens_per_s: float, *, tensor: int = 1, context: int = 1,
    sequence: int = 8192, recomputation: str = "op", peak_gib: float = 0.0, compiled: bool = True,
    fp8: bool = False, gpu: str = "h100",
) -> PublishedRun:  # fmt: skip
    """tokens_per_s: of one GPU; peak_gib: 0 where it was not published."""
    card = replace(read_card(model), sequence=sequence)
    grid = TrainingGrid(
        data=data, tensor=tensor, context=context, zero_stage=3, microbatch=microbatch, recomputation=recomputation
    )  # fmt: skip
    kind = ", ".join(("compiled" if compiled else "eager", *(["float8"] if fp8 else [])))
    split = f"FSDP {data} x tensor {tensor}" + (f" x context {context}" if context > 1 else "")
    return PublishedRun(
        name=f"{model} on {gpu}, {split}, {microbatch} of {sequence} tokens, {kind}, {recomputation} recomputation, "
        f"{tokens_per_s:g} tokens/s",
        card=card, grid=grid, preset=f"dgx-{gpu}", stack="fsdp-h100", memory="96GB" if gpu == "h100" else "",
        speed=SPEED if gpu == "h100" else 1.0, precision="fp8" if fp8 else None, family="float8" if fp8 else "bfloat16",
        peak_bytes=peak_gib * GIB or None, measured_s=grid.batch * card.sequence / tokens_per_s / grid.devices,
    )  # fmt: skip


def runs() -> list[PublishedRun]:
    """Tables 1 to 4 of December 2024, "Vanilla TP" and H200 of June 2025: all rows at hand without asynchronous tensor
    parallelism or scales by row, but for those that keep a pipeline's batch to themselves."""
    return [
        _run("llama3-8b", 8, 2, 5762, compiled=False, peak_gib=82.4),
        _run("llama3-8b", 8, 2, 6667, peak_gib=77.0),
        _run("llama3-8b", 8, 2, 8532, fp8=True, peak_gib=76.8),
        _run("llama3-8b", 128, 2, 5605, compiled=False, peak_gib=67.0),
        _run("llama3-8b", 128, 2, 6514, peak_gib=62.0),
        _run("llama3-8b", 128, 2, 8380, fp8=True, peak_gib=61.8),
        _run("llama3-8b", 8, 12, 4378, tensor=8),
        _run("llama3-8b", 8, 12, 5078.1, tensor=8, fp8=True),
        _run("llama3-70b", 32, 16, 597.3, tensor=8, recomputation="full"),
        _run("llama3-70b", 32, 16, 809.8, tensor=8, recomputation="full", fp8=True),
        _run("llama3-70b", 32, 16, 829, tensor=8, recomputation="full", fp8=True, peak_gib=71.9),
        _run("llama3-8b", 8, 1, 3890, sequence=32_768, recomputation="full", fp8=True, peak_gib=83.9),
        _run("llama3-8b", 4, 1, 2540, context=2, sequence=65_536, recomputation="full", fp8=True, peak_gib=84.2),
        _run("llama3-8b", 2, 1, 1071, context=4, sequence=131_072, recomputation="full", fp8=True, peak_gib=84.0),
        _run("llama3-8b", 1, 1, 548, context=8, sequence=262_144, recomputation="full", fp8=True, peak_gib=84.5),
        _run("llama3-8b", 32, 2, 10_938, fp8=True, gpu="h200", peak_gib=47.96),
        _run("llama3-8b", 64, 2, 10_753, fp8=True, gpu="h200", peak_gib=46.97),
    ]


def source() -> Source:
    published = runs()
    return Source(
        title="Llama 3.1 8B and 70B under torchtitan on 8 to 256 H100 and H200 (PyTorch)",
        method=f"By `fsdp-h100`, which was calibrated on other networks. Its H100s are limited to 500 of 700 W: "
        f"they are taken to be {SPEED} times as fast, the cube root of that; that torch.compile fuses kernels has "
        'nothing that stands for it. "op" recomputation is its "selective", which keeps every other matrix product.',
        steps=all_predicted(published),
        commands=published[0].command,
        not_expressed={
            "rows of asynchronous tensor parallelism, or with a scale for each row": 9,
            "pipelines of 405B, all with asynchronous tensor parallelism": 6,
        },
    )
