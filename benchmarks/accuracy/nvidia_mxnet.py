"""NVIDIA's ResNet-50 in MXNet (DeepLearningExamples, 2024: MxNet/Classification/RN50v1.5, 20.12 and 22.10)."""

from __future__ import annotations

from benchmarks.accuracy import _cnn_scaling
from benchmarks.accuracy._cnn_scaling import Throughputs
from benchmarks.accuracy._source import Source

TABLES = (
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1", dtype="float32", batch=96,
        images_per_s={1: 384, 2: 763, 4: 1513, 8: 3005},
    ),
    Throughputs(
        preset="p3-16xlarge", machine="DGX-1", dtype="float16", batch=192,
        images_per_s={1: 1376, 2: 2768, 4: 5357, 8: 10723},
    ),
    Throughputs(
        preset="dgx-a100", machine="DGX A100", dtype="tf32", batch=512,
        images_per_s={1: 1055.78, 4: 4182.30, 8: 8247.44},
    ),
    Throughputs(
        preset="dgx-a100", machine="DGX A100", dtype="float16", batch=512,
        images_per_s={1: 3410.52, 4: 13442.66, 8: 26673.72},
    ),
)  # fmt: skip


def source() -> Source:
    return _cnn_scaling.source("MXNet", TABLES, "the spread of ranks, on these and TensorFlow's")
