"""GPUs that train language models: dense bf16 peak and memory, from their data sheets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.errors import UnknownNameError

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One GPU. flops_per_s: dense bf16 (fp16 where there is no bf16); sparsity is not counted."""

    name: str
    kind: str
    flops_per_s: float
    memory_bytes: float
    memory_bytes_per_s: float
    source: str


_SHEETS = (
    Accelerator(
        name="v100", kind="NVIDIA V100 32GB SXM2", flops_per_s=125e12, memory_bytes=32 * GIB, memory_bytes_per_s=900e9,
        source="NVIDIA V100 data sheet, fp16 tensor cores",
    ),
    Accelerator(
        name="a100-40", kind="NVIDIA A100 40GB SXM4", flops_per_s=312e12, memory_bytes=40 * GIB,
        memory_bytes_per_s=1555e9, source="NVIDIA A100 data sheet",
    ),
    Accelerator(
        name="a100", kind="NVIDIA A100 80GB SXM4", flops_per_s=312e12, memory_bytes=80 * GIB, memory_bytes_per_s=2039e9,
        source="NVIDIA A100 data sheet",
    ),
    Accelerator(
        name="h100", kind="NVIDIA H100 80GB SXM5", flops_per_s=989e12, memory_bytes=80 * GIB, memory_bytes_per_s=3350e9,
        source="NVIDIA H100 data sheet",
    ),
    Accelerator(
        name="h200", kind="NVIDIA H200 141GB SXM5", flops_per_s=989e12, memory_bytes=141e9, memory_bytes_per_s=4800e9,
        source="NVIDIA H200 data sheet",
    ),
    Accelerator(
        name="b200", kind="NVIDIA B200 180GB SXM6", flops_per_s=2250e12, memory_bytes=180e9, memory_bytes_per_s=8000e9,
        source="NVIDIA DGX B200 data sheet",
    ),
)  # fmt: skip
ACCELERATORS: Mapping[str, Accelerator] = {sheet.name: sheet for sheet in _SHEETS}


def accelerator(name: str) -> Accelerator:
    """The GPU called `name`. Raises UnknownNameError."""
    if name not in ACCELERATORS:
        raise UnknownNameError.of("accelerator", name, ACCELERATORS)
    return ACCELERATORS[name]
