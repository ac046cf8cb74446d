"""Equal micro-batches of a steady state: simulated until the state repeats, then counted, the report is the whole's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from small_networks import chain, switched

from simulator.cluster import Cluster
from simulator.engine.noise import Noise
from simulator.network.topologies import Wire, two_tier
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.report.extrapolation import RULES, DifferenceError, extrapolated
from simulator.run import run, step_report, step_seconds
from simulator.runtime import IDEAL, Runtime
from simulator.steady_state import RepeatedStep, SimulatedStep, find_round, repeated_step
from simulator.workload import Profile

EXACT, CHAIN = 1e-9, 1e-2
FAST, SLOW = (Wire(bandwidth_bytes_per_s=x, latency_s=y, tier=z) for x, y, z in ((1e7, 1e-5, "a"), (3e6, 2e-4, "b")))
SCHEDULES = ("1f1b", "1f1b", "gpipe", "dataflow", "interleaved", "zero-bubble", "pipedream", "pipedream-2bw")


def simulated(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> SimulatedStep:
    from simulator.run import _simulated

    return _simulated(profile, cluster, plan, runtime, Noise())


def repeated(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> RepeatedStep | None:
    return repeated_step(plan, cluster, runtime, lambda part: simulated(profile, cluster, part, runtime), chains=True)


def assert_close(whole: object, counted: object, scale: Mapping[str, float], name: str = "") -> None:
    """The same figures: numbers to EXACT of themselves or of the step's largest of that unit."""
    if isinstance(whole, Mapping):
        assert isinstance(counted, Mapping)
        if name != ".path_s":  # of chains of one length either may be the one
            assert whole.keys() == counted.keys(), name
            for key in whole:
                assert_close(whole[key], counted[key], scale, f"{name}.{key}")
        assert len(whole) == 0 or name != ".path_s" or sum(counted.values()) == pytest.approx(sum(whole.values()), rel=EXACT)
    elif isinstance(whole, Sequence) and not isinstance(whole, str):
        assert isinstance(counted, Sequence) and len(whole) == len(counted), name
        for one, other in zip(whole, counted, strict=True):
            assert_close(one, other, scale, name)
    elif isinstance(whole, float):
        close = CHAIN if name == ".critical_path_s" else EXACT
        unit = next((size for end, size in scale.items() if name.endswith(end)), 1.0)
        assert counted == pytest.approx(whole, rel=close, abs=EXACT * unit), name
    else:
        assert whole == counted, name


def assert_same_report(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> bool:
    """Compare the report of a step with that of all its micro-batches; whether it was made of fewer."""
    whole, counted = run(profile, cluster, plan, runtime=runtime).report, step_report(profile, cluster, plan, runtime=runtime)
    figures = [report.to_dict() for report in (whole, counted)]
    for one in figures:  # which of equally long chains binds is open
        one.pop("bottleneck"), one.pop("step_band_s")
    assert_close(*figures, {"_s": whole.step_s, "bytes": whole.communication_bytes.total})
    assert step_seconds(profile, cluster, plan, runtime) == pytest.approx(whole.step_s, rel=EXACT)
    return repeated(profile, cluster, plan, runtime) is not None


@st.composite
def pipelines(draw: st.DrawFn, profile: Profile) -> tuple[Cluster, Plan]:
    """Stages of some ranks, each 1 or 2 times, with 40 to 70 micro-batches of one sample for each replica."""
    schedule = draw(st.sampled_from(SCHEDULES))
    layers = len(profile.layers)
    chunks = 2 if schedule in ("interleaved", "zero-bubble") and layers >= 4 and draw(st.booleans()) else 1
    stages = draw(st.integers(1, max(1, min(3, layers // chunks))))
    replicas = draw(st.integers(1, 2))
    count = stages * replicas
    cluster = two_tier(count, draw(st.sampled_from((1, count))), FAST, SLOW)
    placements = {}
    for position, layer in enumerate(profile.layers):
        stage = position * stages * chunks // layers % stages
        devices = tuple(stage * replicas + k for k in range(replicas))
        placements[layer.name] = Sharding(degrees=(replicas, 1, 1, 1), devices=devices)
    microbatches = draw(st.integers(40, 70))
    if schedule in ("interleaved", "zero-bubble", "pipedream-2bw"):
        microbatches = microbatches // stages * stages
    stage = draw(st.integers(0, 3)) if schedule not in ("pipedream", "pipedream-2bw") else 0
    return cluster, Plan(
        model=profile.model,
        batch_size=microbatches * replicas,
        microbatches=microbatches,
        placements=placements,
        schedule=schedule,
        synchronisation=Synchronisation(bucket_bytes=draw(st.sampled_from((0, 500, 2**20))), overlap=draw(st.booleans())),
        states=ParameterStates(stage=stage, each_microbatch=stage >= 2 and draw(st.booleans())),
        exchange=draw(st.sampled_from(("messages", "collectives"))),
    )


def straight(profile: Profile) -> Profile:
    """The same layers, each read by the next alone, so that stages of a pipeline follow one another."""
    layers = [replace(layer, update_s=1e-3 if layer.parameter_bytes else 0.0) for layer in profile.layers]
    return replace(profile, layers=tuple(layers))


@settings(max_examples=60)
@given(st.data(), st.lists(st.integers(1, 30), min_size=1, max_size=8), st.sampled_from((IDEAL, Runtime(overlap_slowdown=1.5))))
def test_a_pipeline_of_many_micro_batches(data: st.DataObject, seconds: list[int], runtime: Runtime) -> None:
    profile = chain([x * 1e-4 for x in seconds])
    layers = [replace(layer, parameter_bytes=900, update_s=1e-4) for layer in profile.layers]
    profile = replace(profile, layers=tuple(layers))
    cluster, plan = data.draw(pipelines(profile))
    event(f"{plan.schedule}: {'counted' if assert_same_report(profile, cluster, plan, runtime) else 'whole'}")


@settings(max_examples=40)
@given(st.data(), profiles(max_layers=4))
def test_any_placement_of_many_micro_batches(data: st.DataObject, profile: Profile) -> None:
    """Dataflow on random clusters, where transfers of different micro-batches contend."""
    cluster = data.draw(clusters())
    plan = data.draw(plans(profile, cluster))
    microbatches = data.draw(st.integers(40, 60))
    plan = replace(plan, batch_size=plan.microbatch_size * microbatches, microbatches=microbatches)
    event("counted" if assert_same_report(profile, cluster, plan) else "whole")
