"""Seconds of operators by shape, beside tables of measured kernels. Usage: python -m benchmarks.library.operators

Needs SHARDSCOPE_DATA. What was fitted to a table is named; all else of it is held out. A shape's error is what remains
of predicted over measured once a table's median is divided out, beside that of one share of the peak for all shapes.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.pages.published import shared_data, table
from simulator.language_models.accelerators import Accelerator, accelerator
from simulator.language_models.kernels import EXPERT_CALL_S, attention_seconds, product_seconds

MEMORY_SHARE = 0.85
"""Of the data sheet's bandwidth, as training stacks have it."""
HOST_BOUND_S = 2.5e-4
"""Operators of Aceso's table that are shorter took as long as their launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOperator:
    """One row of a table: what was measured, what is predicted, and what one share of the peak would scale with."""

    measured_s: float
    predicted_s: float
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    name: str
    fitted: str
    """What of the prediction was fitted to it."""
    operators: tuple[MeasuredOperator, ...]

    @property
    def bias(self) -> float:
        """The median of predicted over measured, less 1."""
        return float(np.median([each.predicted_s / each.measured_s for each in self.operators])) - 1

    @property
    def errors(self) -> tuple[float, float]:
        """(ours, of one share of the peak): mean error of shapes, each after its median."""
        ours = _spread([each.predicted_s / each.measured_s for each in self.operators])
        return ours, _spread([each.flops / each.measured_s for each in self.operators])


def _spread(ratios: list[float]) -> float:
    return float(np.mean(np.abs(np.array(ratios) / np.median(ratios) - 1)))


def _product(
    gpu: Accelerator, sizes: tuple[int, int, int], measured_s: float, groups: int = 1, result_bytes: int = 2
) -> MeasuredOperator:
    rate = gpu.memory_bytes_per_s * MEMORY_SHARE
    call_s = EXPERT_CALL_S if groups > 1 else 0.0
    predicted_s = product_seconds(*sizes, gpu, rate, groups, element_bytes=result_bytes, call_s=call_s)
    flops = 2.0 * groups * sizes[0] * sizes[1] * sizes[2]
    return MeasuredOperator(measured_s=measured_s, predicted_s=predicted_s, flops=flops)


def _simumax(system: str, operator: str) -> Iterator[tuple[dict[str, str], float]]:
    """Sizes of an operator in a file of SimuMax, and the share of the peak that was measured."""
    text = (shared_data() / "simumax" / "configs" / "system" / f"{system}.json").read_text()
    shares = json.loads(text)["accelerator"]["op"][operator]["accurate_efficient_factor"]
    for key, share in shares.items():
        yield dict(pair.split("=") for pair in key.split(", ")), share


def simumax_products(system: str, gpu: Accelerator) -> Iterator[MeasuredOperator]:
    for size, share in _simumax(system, "matmul"):
        m, n, k = (int(size[name]) for name in "mnk")
        added = size["accumulate"] == "True"
        result_bytes = {"bf16": 2, "fp32": 4}[size["out_dtype"]] * (2 if added else 1)
        yield _product(gpu, (m, k, n), 2 * m * n * k / share / gpu.flops_per_s, result_bytes=result_bytes)


def simumax_groups(system: str, gpu: Accelerator) -> Iterator[MeasuredOperator]:
    """Products of experts: a weight gradient sums over the tokens."""
    for size, share in _simumax(system, "group_matmul"):
        groups, m, n, k = (int(size[name]) for name in ("ng", "M", "N", "K"))
        seconds = 2 * groups * m * n * k / share / gpu.flops_per_s
        weights = size["stage"] == "bwd_grad_w"
        sizes = {"fwd": (m, k, n), "bwd_grad_act": (m, n, k), "bwd_grad_w": (k, m, n)}[size["stage"]]
        result_bytes = {"bf16": 4, "fp32": 8}[size["main_grad_dtype"]] if weights else 2
        yield _product(gpu, sizes, seconds, groups, result_bytes)


def simumax_attention(system: str, gpu: Accelerator) -> Iterator[MeasuredOperator]:
    """Heads of 128 channels; the source counts masked scores too."""
    for part, operator in enumerate(("sdp_fwd", "sdp_bwd")):
        for size, share in _simumax(system, operator):
            if size["qk_head_dim"] != size["v_head_dim"]:
                continue
            length, heads, width = (int(size[name]) for name in ("seq_len", "head_num", "qk_head_dim"))
            flops = (4.0, 10.0)[part] * length**2 * heads * width
            yield MeasuredOperator(
                measured_s=flops / share / gpu.flops_per_s, flops=flops,
                predicted_s=attention_seconds(1, length, heads, width, gpu, "fused")[part],
            )  # fmt: skip


def aceso_products(gpu: Accelerator) -> Iterator[MeasuredOperator]:
    """The first linear layer of GPT's feed-forward layers by micro-batch and tensor degree; others hold all-reduces."""
    with tarfile.open(shared_data() / "aceso" / "visible.tar.gz") as archive:
        for member in archive.getmembers():
            words = Path(member.name).stem.split("_")
            if words[0] != "gpt" or words[-1] != "algo0":
                continue
            hidden, samples, tensor = {"350M": 1024}.get(words[1], 2048), int(words[-3][3:]), int(words[-2][2:])
            text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            taken = {row["op_name"]: float(row["forward-compute"]) for row in csv.DictReader(io.StringIO(text))}
            if (seconds := taken["enc-MLP-GEMM-1"] * 1e-6) > HOST_BOUND_S:
                yield _product(gpu, (samples * 2048, hidden, 4 * hidden // tensor), seconds)


def neusight_products(folder: str, gpu: Accelerator) -> Iterator[MeasuredOperator]:
    """GPT-2's linear layers and batched products in fp32, with an fp32 peak in place of the 16-bit one."""
    gpu = replace(gpu, flops_per_s=gpu.fp32_flops_per_s)
    rate = gpu.memory_bytes_per_s * MEMORY_SHARE / 2  # elements of 4 bytes, not 2
    for path in sorted((shared_data() / "neusight" / folder).glob("*.csv.gz")):
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                if not row["target"].startswith(("<built-in method addmm", "<built-in method matmul")):
                    continue
                *_, first, second = ast.literal_eval(row["input_shapes"])
                groups = int(np.prod(first[:-2]))
                sizes = first[-2], first[-1], second[-1]
                predicted_s = product_seconds(*sizes, gpu, rate, groups)
                flops = 2.0 * groups * sizes[0] * sizes[1] * sizes[2]
                measured_s = float(row["fw_latency"]) * 1e-3
                yield MeasuredOperator(measured_s=measured_s, predicted_s=predicted_s, flops=flops)


def operator_tables() -> list[OperatorTable]:
    """Every table at hand."""
    a100, b200, v100, h100 = map(accelerator, ("a100-pcie", "b200", "v100", "h100"))
    made: tuple[tuple[str, str, Callable[[], Iterator[MeasuredOperator]]], ...] = (
        (
            "products, bf16, A100 PCIe (SimuMax)", "three constants of tiles, the share",
            lambda: simumax_products("a100_pcie", a100),
        ),
        (
            "products, bf16, B200 (SimuMax)", "the share, a tenth less",
            lambda: simumax_products("b200_bf16_ceperm", b200),
        ),
        ("products, fp16, V100 (Aceso)", "the share", lambda: aceso_products(v100)),
        ("products, fp32, H100 (NeuSight)", "nothing", lambda: neusight_products("NVIDIA_H100_80GB_HBM3", h100)),
        ("experts' products, bf16, A100 PCIe (SimuMax)", "nothing", lambda: simumax_groups("a100_pcie", a100)),
        ("experts' products, bf16, B200 (SimuMax)", "nothing", lambda: simumax_groups("b200_bf16_ceperm", b200)),
        ("attention, bf16, A100 PCIe (SimuMax)", "the last block", lambda: simumax_attention("a100_pcie", a100)),
        ("attention, bf16, B200 (SimuMax)", "the share", lambda: simumax_attention("b200_bf16_ceperm", b200)),
    )  # fmt: skip
    return [OperatorTable(name=name, fitted=fitted, operators=tuple(rows())) for name, fitted, rows in made]


def page() -> str:
    """The table in Markdown."""
    rows = [
        [
            each.name, len(each.operators), each.fitted, f"{each.bias:+.1%}", f"{each.errors[0]:.1%}",
            f"{each.errors[1]:.1%}",
        ]
        for each in operator_tables()
    ]  # fmt: skip
    return table(["operators", "rows", "fitted to them", "median", "error of shapes", "with one share"], rows)


if __name__ == "__main__":
    print(page())
