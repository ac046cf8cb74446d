"""Stages that are simulated before one is kept, and the strongest plan of every strategy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from test_closed_forms import chain, star

from partitioners import make_plan
from partitioners._judge import Judge
from partitioners._stage_cuts import device_counts, stage_plans
from partitioners._strongest import STRATEGIES, strongest, with_microbatches
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.plan import StepSettings
from simulator.run import step_seconds
from simulator.runtime import Runtime
from simulator.workload import Profile

BATCH = 64
TOLERANCE = 1.005
FAST = Wire(bandwidth_bytes_per_s=1.2e11, latency_s=3e-6, tier="intra")


@cache
def profile_called(name: str) -> Profile:
    return files.read_profile(name)


def cluster_of(shape: str, devices: int, gigabits: float) -> Cluster:
    wire = Wire(bandwidth_bytes_per_s=gigabits / 8 * 1e9, latency_s=2e-5, tier="inter")
    made = two_tier(devices, 4, FAST, wire) if shape == "nodes" else flat_switch(devices, wire)
    return made.with_speed(60.0)


def judged_s(strategy: str, profile: Profile, cluster: Cluster) -> float:
    plan = planned(strategy, profile, cluster, batch_size=BATCH, judged=True)
    return step_seconds(profile, cluster, plan)


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(("alexnet", "vgg_small", "resnet_small")),
    st.sampled_from(("switch", "nodes")),
    st.sampled_from(("model", "pipeline")),
    st.sampled_from((1.0, 4.0, 16.0)),
    st.tuples(st.integers(1, 8), st.integers(1, 8)).map(sorted),
)
def test_more_devices_or_faster_links_are_never_slower(
    name: str, shape: str, strategy: str, gigabits: float, counts: list[int]
) -> None:
    profile, (few, many) = profile_called(name), counts
    with_few_s = judged_s(strategy, profile, cluster_of(shape, few, gigabits))
    with_many_s = judged_s(strategy, profile, cluster_of(shape, many, gigabits))
    assert with_many_s <= with_few_s * TOLERANCE
    assert judged_s(strategy, profile, cluster_of(shape, many, 2 * gigabits)) <= with_many_s * TOLERANCE


def test_judged_stages_are_never_slower_than_the_promised_ones() -> None:
    profile, cluster = profile_called("vgg_small"), cluster_of("switch", 8, 10.0)
    for own in ({}, {"replicas": True}):
        plain = planned("pipeline", profile, cluster, batch_size=BATCH, **own)
        assert judged_s("pipeline", profile, cluster) <= step_seconds(profile, cluster, plain) * TOLERANCE


def test_a_slow_network_is_left_alone() -> None:
    """At 1 kB/s one device is faster than any cut."""
    profile, cluster = chain(6, batch=BATCH), star(4, bandwidth=1e3)
    plan = planned("pipeline", profile, cluster, batch_size=BATCH, judged=True)
    assert plan.devices == (0,)


def test_what_the_step_says_holds() -> None:
    profile, cluster = chain(6, batch=BATCH), star(4)
    plan = planned("pipeline", profile, cluster, batch_size=BATCH, microbatches=4, schedule="gpipe", judged=True)
    assert (plan.microbatches, plan.schedule) == (4, "gpipe")
    with pytest.raises(InputError, match="chunks is 2"):
        planned("pipeline", profile, cluster, batch_size=BATCH, schedule="interleaved", judged=True)


def test_counts_of_devices_are_those_of_fewer_and_more() -> None:
    assert device_counts(6) == [6, 5, 4, 3, 2, 1]
    assert device_counts(20) == [20, 10, 8, 7, 6, 5, 4, 3, 2, 1]
    promised = list(stage_plans(chain(6, batch=BATCH), star(4), StepSettings(batch_size=BATCH)))
    assert {len(plan.devices) for plan in promised} == {1, 2, 3, 4}


@pytest.mark.parametrize("price_s", [0.0, 1e-5])
def test_the_search_is_never_worse_than_the_strongest_of_any_strategy(price_s: float) -> None:
    profile, cluster = profile_called("vgg_small"), cluster_of("switch", 4, 10.0)
    runtime = Runtime(name="priced", task_overhead_s=price_s)
    step = StepSettings(batch_size=BATCH, runtime=runtime)
    plan = make_plan("hypergraph", profile, cluster, step, effort=0.2)
    search_s = step_seconds(profile, cluster, plan, runtime)
    for name in STRATEGIES:
        verdict = strongest(Judge(profile=profile, cluster=cluster, runtime=runtime), step, name, effort=0.04)
        assert verdict is not None
        assert search_s <= verdict.step_s * (1 + 1e-9), name
        if name != "layerwise":
            plain = make_plan(name, profile, cluster, step)
            assert verdict.step_s <= step_seconds(profile, cluster, plain, runtime) * TOLERANCE


def test_micro_batches_keep_to_the_batch_and_the_parts() -> None:
    profile = chain(2, batch=8)
    plan = planned("data", profile, star(4), batch_size=8)
    assert with_microbatches(plan, 0.5) is None
    assert with_microbatches(plan, 3.0) is None
    doubled = with_microbatches(plan, 2.0)
    assert doubled == replace(plan, microbatches=2)
    assert with_microbatches(replace(plan, microbatches=2), 2.0) is None  # 2 samples for 4 parts
