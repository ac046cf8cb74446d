"""ResNet-50 on GPUs of one host, by what one of them takes: NVIDIA's published throughputs of a training framework.

The library's layers of ResNet-50, at the speed that the framework has on one GPU in that precision, so that what is
predicted is what devices lose together: sums of gradients, and the wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import partitioners
from benchmarks.accuracy._plans import prediction
from benchmarks.accuracy._source import Source
from benchmarks.accuracy._steps import PredictedStep
from simulator.files import read_profile
from simulator.network.catalogue import read_cluster
from simulator.plan import StepSettings
from simulator.run import step_seconds
from simulator.workload import Profile

PROFILES = {"p3-16xlarge": "resnet50_v100", "dgx-a100": "resnet50_a100"}
"""By preset: a DGX-1 has the NVLinks of the one, a DGX A100 is the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughputs:
    """Rows of one table: images per second by GPUs, the first of which is one."""

    preset: str
    machine: str
    dtype: str
    batch: int
    """Images of each GPU."""
    images_per_s: dict[int, float]

    def steps(self) -> Sequence[PredictedStep]:
        return [self._step(devices) for devices in list(self.images_per_s)[1:]]

    def _step(self, devices: int) -> PredictedStep:
        profile = replace(read_profile(PROFILES[self.preset]), dtype=self.dtype)
        cluster = read_cluster(self.preset, devices=devices).with_speed(self._speed(profile))
        plan = partitioners.make_plan("data", profile, cluster, StepSettings(batch_size=devices * self.batch))
        return PredictedStep(
            name=f"{devices} x {self.batch} images, {self.machine}, {self.dtype}",
            **{**prediction(profile, cluster, plan), "fit": ""},
            measured_s=devices * self.batch / self.images_per_s[devices],
            family="16 bits" if self.dtype == "float16" else "32 bits",
        )

    def _speed(self, profile: Profile) -> float:
        """Of one GPU, over the one whose layers were timed."""
        cluster = read_cluster(self.preset, devices=1)
        plan = partitioners.make_plan("data", profile, cluster, StepSettings(batch_size=self.batch))
        return step_seconds(profile, cluster, plan) * self.images_per_s[1] / self.batch


def source(framework: str, tables: Sequence[Throughputs], calibrated: str) -> Source:
    """What a framework's tables say beside what is predicted."""
    first = tables[0]
    return Source(
        title=f"ResNet-50 on 2 to 8 GPUs of a host under {framework} (NVIDIA DeepLearningExamples)",
        method="The library's layers of ResNet-50 at the speed of the framework on one GPU (`--speed`). What is "
        "predicted is what GPUs lose together; 16 bits are mixed precision, whose gradients are summed in 32. "
        "Memory is not judged: these layers keep what float32 keeps.",
        steps=[step for each in tables for step in each.steps()],
        calibrated=calibrated,
        commands=f"shardscope compare {PROFILES[first.preset]} --cluster {first.preset} --devices 8 "
        f"--batch-size {8 * first.batch} --speed {first._speed(read_profile(PROFILES[first.preset])):.3f} "
        "--strategies data",
        not_expressed={},
    )
