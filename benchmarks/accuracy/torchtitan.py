"""torchtitan's bf16 rows of Llama 3.1: FSDP and tensor parallelism on 8 to 256 H100."""

from __future__ import annotations

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from simulator.language_models.accelerators import GIB
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid


def _run(
    model: str, data: int, microbatch: int, tokens_per_s: float, compiled: bool, tensor: int = 1,
    recomputation: str = "op", peak_gib: float = 0.0,
) -> PublishedRun:  # fmt: skip
    """tokens_per_s: of one GPU; peak_gib: 0 where it was not published."""
    card = read_card(model)
    grid = TrainingGrid(data=data, tensor=tensor, zero_stage=3, microbatch=microbatch, recomputation=recomputation)
    kind = "compiled" if compiled else "eager"
    return PublishedRun(
        name=f"{model}, FSDP {data} x tensor {tensor}, {microbatch} sequences, {kind}, {recomputation} recomputation",
        card=card, grid=grid, preset="dgx-h100", memory="96GB",
        peak_bytes=peak_gib * GIB or None, measured_s=grid.batch * card.sequence / tokens_per_s / grid.devices,
    )  # fmt: skip


def runs() -> list[PublishedRun]:
    """Tables 1 and 3 of December 2024 and "Vanilla TP" of June 2025: all rows at hand without float8."""
    return [
        _run("llama3-8b", 8, 2, 5762, compiled=False, peak_gib=82.4),
        _run("llama3-8b", 8, 2, 6667, compiled=True, peak_gib=77.0),
        _run("llama3-8b", 128, 2, 5605, compiled=False, peak_gib=67.0),
        _run("llama3-8b", 128, 2, 6514, compiled=True, peak_gib=62.0),
        _run("llama3-8b", 8, 12, 4378, compiled=True, tensor=8),
        _run("llama3-70b", 32, 16, 597.3, compiled=True, tensor=8, recomputation="full"),
    ]


def source() -> Source:
    published = runs()
    return Source(
        title="Llama 3.1 8B and 70B under torchtitan on 8 to 256 H100 (PyTorch)",
        method="By `nanotron-h100`, which was calibrated on other software. Its H100s are limited to 500 W with slower "
        'memory, and torch.compile fuses kernels: nothing stands for either. "op" recomputation is its '
        '"selective", which keeps every other matrix product.',
        steps=all_predicted(published),
        commands=published[0].command,
        not_expressed={"rows in float8": 15, "tables whose batch is not said": 2},
    )
