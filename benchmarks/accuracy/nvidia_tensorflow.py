"""NVIDIA's ResNet-50 in TensorFlow with XLA (DeepLearningExamples, 2024: TensorFlow/Classification/ConvNets, 20.06)."""

from __future__ import annotations

from benchmarks.accuracy import _cnn_scaling
from benchmarks.accuracy._cnn_scaling import Throughputs
from benchmarks.accuracy._source import Source

TABLES = (
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1", dtype="float32", batch=128, images_per_s={1: 412, 8: 3170}
    ),
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1", dtype="float16", batch=256, images_per_s={1: 1270, 8: 9510}
    ),
    Throughputs(preset="dgx-a100", machine="DGX A100", dtype="tf32", batch=256, images_per_s={1: 909, 8: 7000}),
    Throughputs(preset="dgx-a100", machine="DGX A100", dtype="float16", batch=256, images_per_s={1: 2375, 8: 17400}),
)  # fmt: skip


def source() -> Source:
    return _cnn_scaling.source("TensorFlow", TABLES, "the spread of ranks, on these and MXNet's")
