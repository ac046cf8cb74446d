"""GPUs that train language models: their data sheets, and what products were measured to sustain of the peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from simulator.errors import require_name

GIB = 2**30
Architecture = Literal["volta", "ampere", "hopper", "blackwell", "cdna2", "cdna3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One GPU, or the part of one that a process sees as a device. Peaks are dense: sparsity is not counted."""

    name: str
    kind: str
    """What a cluster's file calls it."""
    architecture: Architecture
    multiprocessors: int
    """Streaming multiprocessors; compute units of AMD's. Each works on one tile of a product at a time."""
    clock_hz: float
    """The boost clock at which the peaks hold."""
    flops_per_s: float
    """Peak of bf16, or fp16 where there is no bf16, with sums in fp32."""
    sustained_share: float
    """Of that peak, what long products sustain at the power limit, see `sustained_source`."""
    fp8_flops_per_s: float = 0.0
    """0 where it has none."""
    fp8_gain: float = 1.0
    """Of the peak of fp8 long products sustain so many times the share that those of 16 bits do of theirs: on Blackwell
    as Llama 3 8B on 8 B200 has it (NVIDIA, Megatron-Bridge 25.11), within what short products reach before power limits
    them (0.65, SimuMax's table)."""
    tf32_flops_per_s: float = 0.0
    """0 where it has none."""
    fp32_flops_per_s: float = 0.0
    """Of fp32 without matrix units."""
    memory_bytes: float
    memory_bytes_per_s: float
    """Of the data sheet."""
    memory_share: float = 1.0
    """What kernels get of that, over what they get on an A100: on a B200 0.67 to 0.91 (SimuMax's tables)."""
    host_devices: int = 0
    """Of a host, where NVLink joins those of several into one node; 0: a node is a host."""
    uncertainty: float
    """Half the width of 9 in 10 steps around the predicted one for what `sustained_share` may be off; 0 where published
    steps of this GPU are among what predictions stand on (`simulator.report.evidence`)."""
    source: str
    """Of the data sheet."""
    sustained_source: str


_MATMULS = "S. Bekman's table of maximum achievable and sustainable matmul FLOPS (ml-engineering, 2026)"
MEASURED, TABLE, NEIGHBOUR = 0.0, 0.1, 0.2
"""Uncertainties: of GPUs whose published steps were predicted, whose products alone were measured, of others."""
_A100 = {
    "architecture": "ampere", "multiprocessors": 108, "clock_hz": 1.41e9, "flops_per_s": 312e12,
    "tf32_flops_per_s": 156e12, "fp32_flops_per_s": 19.5e12, "source": "NVIDIA A100 data sheet",
}  # fmt: skip
_H100 = {
    "architecture": "hopper", "multiprocessors": 132, "clock_hz": 1.83e9, "flops_per_s": 989e12,
    "fp8_flops_per_s": 1979e12, "tf32_flops_per_s": 494e12, "fp32_flops_per_s": 67e12,
}  # fmt: skip
_V100 = {
    "architecture": "volta", "multiprocessors": 80, "clock_hz": 1.53e9, "flops_per_s": 125e12,
    "fp32_flops_per_s": 15.7e12, "memory_bytes_per_s": 900e9, "sustained_share": 0.64,
    "sustained_source": "Aceso's table of a V100-32, products of 8,192 rows and more", "uncertainty": TABLE,
    "source": "NVIDIA V100 data sheet, fp16 tensor cores",
}  # fmt: skip
_SXM = {"sustained_share": 0.82, "sustained_source": _MATMULS + ": 271 of 312", "uncertainty": MEASURED}
_H200_CHIP = {
    "sustained_share": 0.69,
    "sustained_source": _MATMULS + ": H200, 755 of 989, a tenth less in steps of 8B and 70B (DGX Cloud)",
}
_B200 = {
    "architecture": "blackwell", "multiprocessors": 148, "clock_hz": 1.85e9, "flops_per_s": 2250e12,
    "fp8_flops_per_s": 4500e12, "tf32_flops_per_s": 1125e12, "fp32_flops_per_s": 75e12,
    "memory_bytes_per_s": 8000e9, "memory_share": 0.73, "uncertainty": TABLE, "fp8_gain": 1.4,
}  # fmt: skip
_SHEETS: tuple[Accelerator, ...] = tuple(
    Accelerator(**sheet)  # type: ignore[arg-type]
    for sheet in (
        {"name": "v100", "kind": "NVIDIA V100 32GB SXM2", "memory_bytes": 32 * GIB, **_V100},
        {"name": "v100-16", "kind": "NVIDIA V100 16GB SXM2", "memory_bytes": 16 * GIB, **_V100},
        {
            "name": "a100-40", "kind": "NVIDIA A100 40GB SXM4", "memory_bytes": 40 * GIB, "memory_bytes_per_s": 1555e9,
            **_A100, **_SXM,
        },
        {
            "name": "a100", "kind": "NVIDIA A100 80GB SXM4", "memory_bytes": 80 * GIB, "memory_bytes_per_s": 2039e9,
            **_A100, **_SXM,
        },
        {
            "name": "a100-pcie", "kind": "NVIDIA A100 80GB PCIe", "memory_bytes": 80 * GIB,
            "memory_bytes_per_s": 1935e9, "sustained_share": 0.78,
            "sustained_source": "SimuMax's table of an A100 PCIe", "uncertainty": TABLE, **_A100,
        },
        {
            "name": "h100", "kind": "NVIDIA H100 80GB SXM5", "memory_bytes": 80 * GIB, "memory_bytes_per_s": 3350e9,
            "uncertainty": MEASURED, "source": "NVIDIA H100 data sheet", **_H100, **_H200_CHIP,
        },
        {
            **_H100, "name": "h100-pcie", "kind": "NVIDIA H100 80GB PCIe", "multiprocessors": 114,
            "clock_hz": 1.62e9, "flops_per_s": 756e12, "fp8_flops_per_s": 1513e12, "tf32_flops_per_s": 378e12,
            "fp32_flops_per_s": 51e12, "memory_bytes": 80 * GIB, "memory_bytes_per_s": 2000e9,
            "sustained_share": 0.7, "uncertainty": NEIGHBOUR, "source": "NVIDIA H100 data sheet",
            "sustained_source": "assumed: half the power of an H100 SXM, three quarters of its peak",
        },
        {
            "name": "h200", "kind": "NVIDIA H200 141GB SXM5", "memory_bytes": 141e9, "memory_bytes_per_s": 4800e9,
            "uncertainty": TABLE, "source": "NVIDIA H200 data sheet", **_H100, **_H200_CHIP,
        },
        {
            "name": "gh200", "kind": "NVIDIA GH200 96GB", "memory_bytes": 96e9, "memory_bytes_per_s": 4000e9,
            "sustained_share": 0.75, "sustained_source": _MATMULS + ": 829 of 989 in bursts, 4 % above an H100",
            "uncertainty": TABLE, "source": "NVIDIA GH200 data sheet", **_H100,
        },
        {
            "name": "b200", "kind": "NVIDIA B200 180GB SXM6", "memory_bytes": 180e9, "sustained_share": 0.44,
            "sustained_source": "long products of SimuMax's table (0.48), a tenth less in steps, as on an H100",
            "source": "NVIDIA DGX B200 data sheet", **_B200,
        },
        {
            **_B200, "name": "gb200", "kind": "NVIDIA GB200 186GB", "multiprocessors": 152, "clock_hz": 2.0e9,
            "flops_per_s": 2500e12, "fp8_flops_per_s": 5000e12, "tf32_flops_per_s": 1250e12,
            "fp32_flops_per_s": 80e12, "memory_bytes": 186e9, "host_devices": 4, "sustained_share": 0.47,
            "sustained_source": "a B200's rate by power, 1.2 kW over 1.0", "uncertainty": NEIGHBOUR,
            "source": "NVIDIA GB200 NVL72 data sheet",
        },
        {
            **_B200, "name": "b300", "kind": "NVIDIA B300 270GB SXM6", "memory_bytes": 270e9, "sustained_share": 0.53,
            "sustained_source": "between a B200's rate by power, 1.4 kW over 1.0, and " + _MATMULS
            + ", 1,519 of 2,250, less what SimuMax's B200 is below",
            "uncertainty": NEIGHBOUR, "source": "NVIDIA DGX B300 data sheet",
        },
        {
            **_B200, "name": "gb300", "kind": "NVIDIA GB300 278GB", "multiprocessors": 152, "clock_hz": 2.0e9,
            "flops_per_s": 2500e12, "fp8_flops_per_s": 5000e12, "tf32_flops_per_s": 1250e12,
            "fp32_flops_per_s": 80e12, "memory_bytes": 278e9, "host_devices": 4, "sustained_share": 0.65,
            "sustained_source": "what a B200 reaches before power limits it, as steps of Llama 3 8B have it",
            "uncertainty": TABLE,
            "source": "NVIDIA GB300 NVL72 data sheet",
        },
        {
            "name": "mi250", "kind": "AMD MI250 64GB, one of two dies", "architecture": "cdna2",
            "multiprocessors": 104, "clock_hz": 1.7e9, "flops_per_s": 181e12, "fp32_flops_per_s": 22.6e12,
            "memory_bytes": 64 * GIB, "memory_bytes_per_s": 1638e9, "sustained_share": 0.75,
            "sustained_source": _MATMULS + ": MI250X, 147 of 191.5 in bursts", "uncertainty": NEIGHBOUR,
            "source": "AMD Instinct MI250 data sheet",
        },
        {
            "name": "mi300x", "kind": "AMD MI300X 192GB", "architecture": "cdna3", "multiprocessors": 304,
            "clock_hz": 2.1e9, "flops_per_s": 1307e12, "fp8_flops_per_s": 2615e12, "tf32_flops_per_s": 654e12,
            "fp32_flops_per_s": 163e12, "memory_bytes": 192 * GIB,
            "memory_bytes_per_s": 5300e9, "sustained_share": 0.53, "sustained_source": _MATMULS + ": 659 of 1,300",
            "uncertainty": TABLE, "source": "AMD Instinct MI300X data sheet",
        },
    )
)  # fmt: skip
ACCELERATORS: Mapping[str, Accelerator] = {sheet.name: sheet for sheet in _SHEETS}


def accelerator(name: str) -> Accelerator:
    """The GPU called `name`. Raises UnknownNameError."""
    require_name("accelerator", name, ACCELERATORS)
    return ACCELERATORS[name]


def sheet_of(kind: str) -> Accelerator | None:
    """The GPU of this kind, as profiles that were modelled name it; None where there is none."""
    return next((sheet for sheet in _SHEETS if sheet.kind == kind), None)
