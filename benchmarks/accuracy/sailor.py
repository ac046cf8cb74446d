"""OPT-350M on 4 to 128 GH200: Sailor's measured plans, from its layer times and its network measurements.

A tensor-parallel group of four is one device. What Sailor's engine does, a modified DeepSpeed, decides the rest: every
GPU of a group puts out the whole activation and sends its quarter to every GPU of the next group, so that four copies
leave a group; a stage sends and receives between passes and goes on when both are done; gradients are summed in one
message per stage after the last backward pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Any

from benchmarks.accuracy._plans import prediction
from benchmarks.accuracy._source import Source
from benchmarks.accuracy._steps import PredictedStep, mean_error
from benchmarks.pages.published import shared_data
from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.files import read_profile
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile

GROUP = 4
PROFILE = "opt_350m_4gh200"
DEEPSPEED = Runtime(name="deepspeed-pipeline", rendezvous=True)
LEAST_MICROBATCH = 2
"""The profile has no times of micro-batch 1: its source's rows do not add up to the steps measured with them."""


def predicted_steps(copies: int = GROUP, runtime: Runtime = DEEPSPEED) -> list[PredictedStep]:
    """Every measured plan. copies: of an activation that leave a group."""
    profile = read_profile(PROFILE)
    layers = tuple(replace(layer, output_bytes=layer.output_bytes * copies) for layer in profile.layers)
    profile = replace(profile, layers=layers)
    return [_predicted(profile, runtime, row) for row in _rows()]


def source() -> Source:
    rows = _rows()
    worst = max(rows, key=lambda row: row["red_grads"])
    others = max(row["red_grads"] for row in rows if row is not worst)
    plain = mean_error(predicted_steps(copies=1, runtime=IDEAL))
    return Source(
        title="OPT-350M on 4 to 128 GH200 (Sailor)",
        method=f"""Compute from the library's `{PROFILE}`, in which a tensor-parallel group of {GROUP} is one device;
network from Sailor's own measurements of bandwidth by message size between two nodes. Its engine sends a quarter of an
activation from every GPU to every GPU of the next group, waits for its messages between passes, and sums gradients
after the last backward pass; so do we. Without that knowledge (activations leave a group once, nobody waits) the mean
error is {plain:.1%}. That a quarter goes to every GPU is read from the loop that sends it, not from the code that forms
its groups, which is not at hand: the form of this model was chosen with the measured steps in view, none of its numbers
was. Counted are the plans with a micro-batch of at least {LEAST_MICROBATCH}.""",
        steps=predicted_steps(),
        calibrated="the form of its messages",
        not_expressed={},
        after=f"""The worst counted row is at odds with itself: of its {worst["real"] * 1e3:,.0f} ms the source books
{worst["red_grads"] * 1e3:,.0f} ms on summing gradients, of no other plan more than {others * 1e3:,.0f} ms.""",
    )


def _rows() -> list[dict[str, Any]]:
    """The measured plans, by nodes."""
    paths = sorted((shared_data() / "sailor" / "validation" / "OPT-350").glob("N*/*.json"), key=_nodes)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _nodes(path: Path) -> tuple[int, str]:
    return int(path.parent.name[1:]), path.name


def _predicted(profile: Profile, runtime: Runtime, row: Mapping[str, Any]) -> PredictedStep:
    pipeline = row["pipeline_list"][0]
    replicas, stages, samples = pipeline["dp"][0], pipeline["layers_per_stage"], row["mbs"]
    plan = Plan(
        model=profile.model,
        batch_size=row["gbs"],
        placements={
            profile.layers[layer].name: Sharding(
                degrees=(replicas, 1, 1, 1), devices=tuple(range(stage * replicas, (stage + 1) * replicas))
            )
            for stage, layers in enumerate(stages)
            for layer in layers
        },
        microbatches=row["gbs"] // (samples * replicas),
        schedule="1f1b",
        synchronisation=Synchronisation(bucket_bytes=profile.parameter_bytes, overlap=False),
        optimizer_state=2.0,
    )
    return PredictedStep(
        name=f"{GROUP * row['N']} GPUs: data {replicas} x pipeline {len(stages)}, {plan.microbatches} x {samples}",
        **prediction(profile, _cluster(replicas * len(stages)), plan, runtime),
        measured_s=row["real"],
        counted=samples >= LEAST_MICROBATCH,
        note="" if samples >= LEAST_MICROBATCH else "times of micro-batch 2 extrapolated",
    )


def _cluster(groups: int) -> Cluster:
    """Groups of four on one switch, at the bandwidth that Sailor measured between two of them by message size.

    Its polynomial gives GB/s over log2 of the megabytes that each GPU sends; four send at once.
    """
    path = shared_data() / "sailor" / "providers" / "network_coeffs_all_homo.json"
    (square, linear, constant), most = json.loads(path.read_text(encoding="utf-8"))["inter"]["GH-96"][str(GROUP)]
    rising = int(-linear / (2 * square))
    points = []
    for exponent in range(-2, rising + 1):
        megabytes = 2.0**exponent
        bandwidth = (square * log2(megabytes) ** 2 + linear * log2(megabytes) + constant) * 1e9
        points.append((GROUP * megabytes * 1e6, GROUP * megabytes * 1e6 / bandwidth))
    cluster = flat_switch(groups, Wire(bandwidth_bytes_per_s=most, tier="inter"), name="GH200 nodes")
    return replace(cluster, links=tuple(replace(link, curve=Curve(points=tuple(points))) for link in cluster.links))
