"""GPT-2 large on four H100: NeuSight's measured steps, data-parallel and pipelined, from one-GPU times of operators."""

from __future__ import annotations

import json

import partitioners
from benchmarks.accuracy._steps import PredictedStep, steps_table, summary
from benchmarks.published import shared_data
from simulator.files import read_profile
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.network.catalogue import read_cluster
from simulator.plan import StepSettings, Synchronisation
from simulator.run import step_seconds

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
                predicted_s=step_seconds(profile, cluster, plan),
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
        predicted_s=step_seconds(profile, cluster, plan),
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


def section() -> str:
    """The section of the page."""
    steps, exposed, sums = predicted_steps(), predicted_steps(overlap=False), layer_sums()
    without = " and ".join(f"{each.error:+.1%}" for each in exposed)
    return f"""## GPT-2 large on four H100 (NeuSight)

Compute from the library's `{PROFILE}`, network from the preset `{CLUSTER}`, gradients in DDP's buckets beside the
backward pass. The source does not say how its gradients were sent; sent after the backward pass, errors would be
{without}.

{steps_table([*steps, pipelined_step()])}

Counted are the data-parallel steps: {summary(steps, "no repeats in the source")}

Of the pipelined step the figure is at hand, not the file with its settings: four micro-batches would take about half as
long, one fits.

The one-GPU times themselves, summed, beside the one-GPU step that the same source measured; part of the errors above
is theirs:

{steps_table(sums)}

{summary(sums, "no repeats in the source")}"""


def _measured(pattern: str) -> dict[int, float]:
    """Seconds of the measured steps by the sequences of the step, ascending."""
    rows = {}
    for path in (shared_data() / "neusight" / FOLDER).glob(pattern):
        sequences = int(path.stem.split("-")[3])
        rows[sequences] = json.loads(path.read_text(encoding="utf-8"))["e2e_latency"] / 1e3
    return dict(sorted(rows.items()))
