"""The gradient buckets of a recorded DDP step on two A100 (Holistic Trace Analysis), and the time of their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import partitioners
from benchmarks.accuracy._source import Source
from benchmarks.accuracy._steps import PredictedStep
from benchmarks.pages.published import shared_data, table
from simulator.files import read_profile
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.catalogue import read_cluster
from simulator.network.collective_times import collective_s
from simulator.plan import FIRST_BUCKET_BYTES, StepSettings, Synchronisation
from simulator.run import step_seconds
from traces.imports._collectives import CollectiveCall, collective_call, is_collective
from traces.imports._recording import Recording, read_recording

PROFILE, CLUSTER = "resnet50_a100", "dgx-a100"
GPUS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBucket:
    """Elements and seconds of a gradient bucket's all-reduce, ours and as recorded."""

    elements: int
    recorded_elements: int
    seconds: float
    recorded_s: float


def buckets() -> list[RecordedBucket]:
    """Ours in the order in which they leave, beside the recorded ones."""
    model, cluster = _model(), read_cluster(CLUSTER, devices=GPUS)
    return [
        RecordedBucket(
            elements=bucket.size_bytes // 4,
            recorded_elements=call.size_bytes // 4,
            seconds=collective_s(cluster, "all-reduce", tuple(range(GPUS)), bucket.size_bytes),
            recorded_s=call.seconds,
        )
        for bucket, call in zip(model.buckets, _recorded(_recording()), strict=True)
    ]


def predicted_steps() -> list[PredictedStep]:
    """The step on the GPUs alone, beside the recorded one from its first work on the GPU to its last."""
    model, recording = _model(), _recording()
    span_s = max(work.start_s + work.duration_s for work in recording.work) - recording.work[0].start_s
    return [
        PredictedStep(
            name=f"ResNet-50, {GPUS} x {model.profile.batch_size} images",
            predicted_s=step_seconds(model.profile, read_cluster(CLUSTER, devices=GPUS), model.plan),
            measured_s=span_s,
            counted=False,
            note="host-bound: the GPUs wait for their launches",
        )
    ]


def source() -> Source:
    head = ["bucket", "elements", "recorded", "all-reduce ms", "recorded ms"]
    rows = [
        [number, f"{each.elements:,}", f"{each.recorded_elements:,}", _ms(each.seconds), _ms(each.recorded_s)]
        for number, each in enumerate(buckets(), 1)
    ]
    return Source(
        title="ResNet-50 on two A100, DistributedDataParallel (Holistic Trace Analysis)",
        method=f"""One recorded step. torch's first bucket holds {FIRST_BUCKET_BYTES // 2**20} MiB where the size is
left at its default (`--first-bucket 1MiB`). Elements of buckets are equal or wrong; there is no error in between. Times
of an all-reduce are those of the preset `{CLUSTER}`; the recorded ones hold waiting for the other GPU, whose host
launches later. The step says nothing about a simulator of GPUs, and is not counted: its GPU waited for launches
most of the time, and layers and step are of the same recording.""",
        steps=predicted_steps(),
        commands=f"shardscope simulate {PROFILE} --cluster {CLUSTER} --devices {GPUS} --strategy data "
        "--first-bucket 1MiB",
        calibrated="layers are those of the recorded step",
        not_expressed={},
        noise_floor="one step was recorded",
        after=table(head, rows),
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _model() -> ShardedModel:
    profile = read_profile(PROFILE)
    settings = StepSettings(
        batch_size=GPUS * profile.batch_size,
        synchronisation=Synchronisation(first_bucket_bytes=FIRST_BUCKET_BYTES),
    )
    return ShardedModel(profile, partitioners.make_plan("data", profile, read_cluster(CLUSTER, devices=GPUS), settings))


def _recording() -> Recording:
    return read_recording(shared_data() / "kineto" / "resnet50-2xa100-ddp-step.json.gz")


def _recorded(recording: Recording) -> Sequence[CollectiveCall]:
    calls = (collective_call(work) for work in recording.work if is_collective(work))
    return [call for call in calls if call.name == "all_reduce"]
