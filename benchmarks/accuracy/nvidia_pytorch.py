"""NVIDIA's ResNet-50 in PyTorch (DeepLearningExamples, 2024: PyTorch/Classification/ConvNets, 21.03)."""

from __future__ import annotations

from benchmarks.accuracy import _cnn_scaling
from benchmarks.accuracy._cnn_scaling import Throughputs
from benchmarks.accuracy._source import Source

TABLES = (
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1 of 16 GB", dtype="float32", batch=112, images_per_s={1: 367, 8: 2855}
    ),
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1 of 16 GB", dtype="float16", batch=256, images_per_s={1: 1200, 8: 8322}
    ),
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1 of 32 GB", dtype="float32", batch=112, images_per_s={1: 356, 8: 2766}
    ),
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1 of 32 GB", dtype="float16", batch=256, images_per_s={1: 1156, 8: 8056}
    ),
    Throughputs(preset="dgx-a100", machine="DGX A100", dtype="tf32", batch=256, images_per_s={1: 938, 8: 7248}),
    Throughputs(preset="dgx-a100", machine="DGX A100", dtype="float16", batch=256, images_per_s={1: 2470, 8: 16621}),
)


def source() -> Source:
    return _cnn_scaling.source("PyTorch", TABLES, "nothing")
