"""Data parallelism held out: one bandwidth per point from VGG-16, then AlexNet and ResNet-50; NCCL curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

import numpy as np

from benchmarks.pages.published import TITLES, profile, shared_data, table
from simulator.curve import Curve
from simulator.plan import Synchronisation
from traces.calibrate.bandwidth_fit import MeasuredStep, fit_one
from traces.imports.nccl_tests import read_nccl_log

CLUSTER, TIER = "azure-v100-10g", "inter"
PER_DEVICE = {"vgg16": 64, "alexnet": 256, "resnet50": 128}
OVERHEAD = {
    8: {"vgg16": 0.879, "alexnet": 0.927, "resnet50": 0.502},
    16: {"vgg16": 0.893, "alexnet": 0.938, "resnet50": 0.560},
    32: {"vgg16": 0.906, "alexnet": 0.940, "resnet50": 0.591},
}
"""PipeDream (Narayanan et al., SOSP 2019, figure 1): the part of a step that communication takes, by GPUs."""
LATER = Synchronisation(overlap=False)
NCCL_DEVICES = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A network that was not calibrated on, at one number of GPUs, with the efficiency that VGG-16 gave there."""

    model: str
    devices: int
    efficiency: float
    published_overhead: float
    overhead: float
    step_error: float


def rows(synchronisation: Synchronisation = LATER) -> Iterator[Row]:
    """Weak scaling of AlexNet and ResNet-50, calibrated on VGG-16 alone."""
    for devices, published in OVERHEAD.items():
        efficiency = fit_one(measured("vgg16", devices, synchronisation), CLUSTER, TIER)
        for model in ("alexnet", "resnet50"):
            row = measured(model, devices, synchronisation)
            step_s = row.step_s_at(CLUSTER, TIER, efficiency)
            yield Row(
                model=model,
                devices=devices,
                efficiency=efficiency,
                published_overhead=published[model],
                overhead=1 - compute_s(model) / step_s,
                step_error=step_s / row.step_s - 1,
            )


def compute_s(model: str) -> float:
    """Seconds of a device's own batch."""
    of_model = profile(model)
    return of_model.layers_s * PER_DEVICE[model] / of_model.batch_size


def measured(model: str, devices: int, synchronisation: Synchronisation) -> MeasuredStep:
    """The step that the published overhead implies: compute / (1 - overhead)."""
    return MeasuredStep(
        profile=profile(model),
        devices=devices,
        batch_size=PER_DEVICE[model] * devices,
        step_s=compute_s(model) / (1 - OVERHEAD[devices][model]),
        synchronisation=synchronisation,
    )


def section() -> str:
    return "\n\n".join(
        [
            "## Data parallelism on 10 Gb/s Ethernet, held out (PipeDream, SOSP 2019, figure 1)",
            "Part of a step that communication takes, 4 V100 per server, weak scaling. One bandwidth per number of "
            "GPUs is calibrated on VGG-16 alone (87.9, 89.3 and 90.6 %); AlexNet and ResNet-50 are predicted from it. "
            "Gradients are summed by a ring once the backward pass has ended:",
            _held_out(LATER),
            "With the ring beside the backward pass ResNet-50 hides more of its communication than was published. We "
            "do not know how far the published runs overlapped and chose the table above because it fits better, so "
            "what is held out is the bandwidth, not the overlap:",
            _held_out(Synchronisation()),
            "## All-reduce on A100 (nccl-tests logs of Feng et al., 2024)",
            "Error at sizes left out: the measured curve without a size, interpolated there, against its time. Beside "
            "it the best latency and bandwidth (least squared relative error over all sizes):",
            _curves(),
            "From 32 GPUs on some times in the logs jump by a multiple from one size to the next.",
        ]
    )


def _held_out(synchronisation: Synchronisation) -> str:
    head = ["network", "GPUs", "efficiency from VGG-16", "published", "ours", "step time"]
    return table(
        head,
        (
            [
                TITLES[row.model],
                row.devices,
                f"{row.efficiency:.1%}",
                f"{row.published_overhead:.1%}",
                f"{row.overhead:.1%}",
                f"{row.step_error:+.1%}",
            ]
            for row in rows(synchronisation)
        ),
    )


def _curves() -> str:
    rows = []
    for devices in NCCL_DEVICES:
        curve = read_nccl_log(shared_data() / "nccl" / f"nccl_{devices}.log").curve
        errors = [[abs(error) for error in of(curve)] for of in (left_out_errors, two_parameter_errors)]
        rows.append([devices, *(f"{value:.1%}" for kind in errors for value in (mean(kind), max(kind)))])
    return table(["GPUs", "curve, mean", "curve, largest", "two parameters, mean", "two parameters, largest"], rows)


def left_out_errors(curve: Curve) -> list[float]:
    """Of every size but the first and the last, how far the curve without it is off there: predicted / measured - 1."""
    points = curve.points
    errors = []
    for i in range(1, len(points) - 1):
        size, seconds = points[i]
        errors.append(Curve(points=points[:i] + points[i + 1 :]).seconds(size) / seconds - 1)
    return errors


def two_parameter_errors(curve: Curve) -> list[float]:
    """How far latency + bytes / bandwidth is off at every size, with the two that have least squared relative error."""
    sizes, seconds = (np.array(column) for column in zip(*curve.points, strict=True))
    terms = np.stack([1 / seconds, sizes / seconds], axis=1)
    (latency_s, s_per_byte), *_ = np.linalg.lstsq(terms, np.ones(len(sizes)), rcond=None)
    return [float(error) for error in (latency_s + s_per_byte * sizes) / seconds - 1]
