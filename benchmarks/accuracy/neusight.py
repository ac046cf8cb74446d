"""GPT-2 large on four H100: NeuSight's measured steps, data-parallel and pipelined, from one-GPU times of operators."""

from __future__ import annotations

import json

import partitioners
from benchmarks.accuracy._plans import prediction
from benchmarks.accuracy._source import Source
from benchmarks.accuracy._steps import PredictedStep
from benchmarks.pages.published import shared_data, table
from simulator.files import read_profile
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.network.catalogue import read_cluster
from simulator.plan import StepSettings, Synchronisation

GPUS = 4
PROFILE, CLUSTER = "gpt2_large_h100", "dgx-h100"
FOLDER = "NVIDIA_H100_80GB_HBM3"
PIPELINED_S = 0.6375
"""The source's step of four stages with 4 sequences; the figure is at hand, the file with its settings is not."""


def predicted_steps(overlap: bool = True) -> list[PredictedStep]:
    """The steps at hand; `overlap` as in Synchronisation."""
    profile, cluster = read_profile(PROFILE), read_cluster(CLUSTER, devices=GPUS)
    settings = Synchronisation(overlap=overlap)
    steps = []
    for batch_size, measured_s in _measured("gpt2_large-train-1024-*-dp4.json").items():
        plan = partitioners.make_plan(
            "data", profile, cluster, StepSettings(batch_size=batch_size, synchronisation=settings)
        )
        steps.append(
            PredictedStep(
                name=f"{GPUS} x {batch_size // GPUS} sequences",
                **prediction(profile, cluster, plan),
                measured_s=measured_s,
            )
        )
    return steps


def pipelined_step() -> PredictedStep:
    """Four stages and one micro-batch of 4 sequences, which is what the figure fits: stages wait for each other."""
    profile, cluster = read_profile(PROFILE), read_cluster(CLUSTER, devices=GPUS)
    step = StepSettings(batch_size=4, microbatches=1)
    plan = partitioners.make_plan("pipeline", profile, cluster, step, judged=False)
    return PredictedStep(
        name=f"{GPUS} stages, 1 micro-batch of 4 sequences",
        **prediction(profile, cluster, plan),
        measured_s=PIPELINED_S,
        counted=False,
        note="number of micro-batches inferred",
    )


def layer_sums() -> list[PredictedStep]:
    """The sum of the layers beside the measured step of one GPU: how far off the profile is by itself."""
    profile = read_profile(PROFILE)
    return [
        PredictedStep(
            name=f"1 x {batch_size} sequences",
            predicted_s=sum(sum(shard_seconds(profile, layer, batch_size)) for layer in profile.layers),
            measured_s=measured_s,
        )
        for batch_size, measured_s in _measured("gpt2_large-train-1024-[0-9].json").items()
    ]


def source() -> Source:
    without = " and ".join(f"{each.error:+.1%}" for each in predicted_steps(overlap=False))
    sums = layer_sums()
    return Source(
        title="GPT-2 large on four H100 (NeuSight)",
        method=f"Compute from the library's `{PROFILE}`, network from the preset `{CLUSTER}`, gradients in DDP's "
        "buckets beside the backward pass. The source does not say how its gradients were sent; sent after the "
        "backward "
        f"pass, errors would be {without}. Of the pipelined step the figure is at hand, not the file with its "
        f"settings: four "
        "micro-batches would take about half as long, one fits.",
        steps=[*predicted_steps(), pipelined_step()],
        commands=f"shardscope compare {PROFILE} --cluster {CLUSTER} --devices {GPUS} --batch-size 16 --strategies data",
        not_expressed={},
        after="The one-GPU times themselves, summed, beside the one-GPU step that the same source measured; part of "
        "the errors above is theirs:\n\n"
        + table(
            ["step", "sum of layers ms", "measured ms"],
            [
                [each.name, f"{1e3 * (each.predicted_s or 0):,.1f}", f"{1e3 * (each.measured_s or 0):,.1f}"]
                for each in sums
            ],
        ),
    )


def _measured(pattern: str) -> dict[int, float]:
    """Seconds of the measured steps by the sequences of the step, ascending."""
    rows = {}
    for path in (shared_data() / "neusight" / FOLDER).glob(pattern):
        sequences = int(path.stem.split("-")[3])
        rows[sequences] = json.loads(path.read_text(encoding="utf-8"))["e2e_latency"] / 1e3
    return dict(sorted(rows.items()))
