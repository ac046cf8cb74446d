"""Stages that are simulated before one is kept, and the strongest plan of every strategy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, profiles
from small_networks import layer, network
from test_closed_forms import chain, star

from benchmarks.robustness import never_slower
from partitioners import make_plan
from partitioners._judge.judge import Judge
from partitioners._search.annealing import with_microbatches
from partitioners._stages.contiguous import ROUNDING, StageCut, Stages
from partitioners._stages.judged_stages import stage_cuts
from partitioners._stages.stage_bounds import chains, messages_seconds, step_bounds_s
from partitioners._stages.stage_costs import needed_bytes
from partitioners._stages.stage_layout import stage_layout
from partitioners._stages.stage_memory import least_peak_bytes
from partitioners._strongest import STRATEGIES, best_of, simulated
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.schedules import SCHEDULES
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.network.transfers import paths
from simulator.plan import StepSettings
from simulator.run import run, step_seconds
from simulator.runtime import Runtime
from simulator.workload import Geometry, Profile

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


def judged_s(strategy: str, profile: Profile, cluster: Cluster, **own: Any) -> float:
    plan = planned(strategy, profile, cluster, batch_size=BATCH, **own)
    return step_seconds(profile, cluster, plan)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(("data", "fsdp", "megatron", "model", "owt", "pipeline")))
def test_more_devices_links_or_memory_are_never_slower(seed: int, strategy: str) -> None:
    """As `benchmarks.robustness.never_slower` draws pairs: schedules, micro-batches, memory limits. A cut made for less
    memory may by chance simulate a little faster than that of the best pace; thousands of pairs say how often."""
    profiles = ("alexnet", "vgg_small", "vgg16_v100", "resnet_small")
    what, less, more = never_slower.random_pair(Random(seed), profiles, (strategy,))
    share = never_slower.longer(less, more)
    assert share is None or share <= (0.03 if what == "gibibytes" else never_slower.TOLERANCE)


@settings(max_examples=25, deadline=None)
@given(profiles(), clusters(), st.sampled_from(sorted(SCHEDULES)), st.integers(1, 2), st.data())
def test_a_cut_never_beats_its_bound(
    profile: Profile, cluster: Cluster, schedule: str, chunks: int, data: st.DataObject
) -> None:
    step, chunks = StepSettings(batch_size=8), chunks if SCHEDULES[schedule].several_stages else 1
    if cuts := stage_cuts(profile, cluster, step, schedule, replicated=chunks == 1, chunks=chunks):
        bounds_s, contended_s = step_bounds_s(profile, cluster, step, schedule, cuts)
        assert (bounds_s <= contended_s * (1 + ROUNDING)).all()
        number = data.draw(st.integers(0, len(cuts) - 1))
        plan = step.plan(profile, cuts[number].partition(profile, schedule))
        try:
            report = run(profile, cluster, plan).report
        except InputError:  # of a schedule that takes other numbers of micro-batches
            return
        assert bounds_s[number] <= report.step_s * (1 + ROUNDING)
        if all(
            layer.forward_s + layer.backward_s for layer in profile.layers
        ):  # what is held for no time makes no peak
            needed_bytes = least_peak_bytes(profile, step, schedule, cuts)[number]
            assert needed_bytes <= report.peak_memory_bytes * (1 + ROUNDING)


def test_a_bound_counts_the_rows_that_are_read() -> None:
    """A window of one row with a stride of two leaves out every other: of two rows one is sent, forth and back."""
    strided = Geometry(kernel=(1, 1), stride=(2, 1), mixes_channels=True)
    first = layer("first", shape=(1, 2, 1), seconds=0.0)
    profile = network(first, layer("second", "first", shape=(1, 1, 1), seconds=0.0, geometry=strided))
    assert needed_bytes(profile) == {(0, 1): 4.0}
    step, cluster = StepSettings(batch_size=2), star(2)
    cuts = stage_cuts(profile, cluster, step, "1f1b", replicated=False)
    bounds_s, _ = step_bounds_s(profile, cluster, step, "1f1b", cuts)
    assert any(len(cut.stages.starts) == 2 for cut in cuts)
    for bound_s, cut in zip(bounds_s, cuts, strict=True):
        report = run(profile, cluster, step.plan(profile, cut.partition(profile, "1f1b"))).report
        assert bound_s <= report.step_s * (1 + ROUNDING)


@settings(max_examples=25, deadline=None)
@given(profiles(), clusters())
def test_rows_of_layers_are_added_up_as_edge_by_edge(profile: Profile, cluster: Cluster) -> None:
    step = StepSettings(batch_size=8)
    if not (cuts := stage_cuts(profile, cluster, step, "1f1b", replicated=True)):
        return
    layout = stage_layout(profile, cluster, step, "1f1b", cuts)
    there_s, back_s = messages_seconds(layout, paths(layout.routes, cluster))
    forward_s, backward_s = layout.forward_s, layout.backward_s
    heads_s, tails_s, spans_s = np.zeros(forward_s.shape), np.zeros(forward_s.shape), forward_s + backward_s
    for edge, (source, reader) in enumerate(layout.edges):
        heads_s[reader] = np.maximum(heads_s[reader], heads_s[source] + forward_s[source] + there_s[edge])
        tails_s[reader] = np.maximum(tails_s[reader], tails_s[source] + backward_s[source] + back_s[edge])
    for edge, (source, reader) in reversed([*enumerate(layout.edges)]):
        path_s = forward_s[source] + there_s[edge] + spans_s[reader] + back_s[edge] + backward_s[source]
        spans_s[source] = np.maximum(spans_s[source], path_s)
    for by_rows_s, expected_s in zip(chains(layout, there_s, back_s), (heads_s, tails_s, spans_s), strict=True):
        assert by_rows_s.tolist() == expected_s.tolist()


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_the_bound_of_a_chain_is_its_step(speed: float) -> None:
    """Equal stages without transfers: nothing but the fill, all micro-batches of one stage, the drain."""
    profile, step = chain(6, batch=BATCH), StepSettings(batch_size=BATCH)
    cluster = star(4, bandwidth=1e18).with_speed(speed)
    cuts = [cut for cut in stage_cuts(profile, cluster, step, "gpipe", replicated=False) if cut.workers in (1, 2, 3)]
    bounds_s, _ = step_bounds_s(profile, cluster, step, "gpipe", cuts)
    steps_s = [step_seconds(profile, cluster, step.plan(profile, cut.partition(profile, "gpipe"))) for cut in cuts]
    assert len(cuts) >= 3 and bounds_s == pytest.approx(steps_s, rel=1e-6)


@pytest.mark.parametrize(("replicas", "microbatches"), [(2, 1), (4, 1), (4, 2)])
def test_the_bound_of_replicas_is_what_they_compute_and_the_ring_beyond_the_last_pass(
    replicas: int, microbatches: int
) -> None:
    """One layer of 30 ms for all of the batch, a third of it forward, whose ring may begin with its last pass."""
    size, rate, latency_s, computed_s = 1_000_000, 1e6, 1e-3, 0.03 / replicas
    cluster, step = star(4, bandwidth=rate, latency_s=latency_s), StepSettings(batch_size=BATCH)
    stages = Stages(starts=(0,), replicas=(replicas,), pace_s=0.0)
    cut = StageCut(stages=stages, microbatches=microbatches, groups=1)
    (bound_s,), _ = step_bounds_s(chain(1, batch=BATCH), cluster, step, "gpipe", [cut])
    ring_s = 2 * (replicas - 1) * (size / replicas / rate + latency_s)
    assert bound_s == pytest.approx(computed_s * (1 - 2 / 3 / microbatches) + ring_s, rel=1e-9)


def test_judged_stages_are_never_slower_than_the_promised_ones() -> None:
    profile, cluster = profile_called("vgg_small"), cluster_of("switch", 8, 10.0)
    for own in ({}, {"replicas": True}, {"replicas": False}, {"schedule": "interleaved", "microbatches": 8}):
        plain = planned("pipeline", profile, cluster, batch_size=BATCH, judged=False, **own)
        assert judged_s("pipeline", profile, cluster, **own) <= step_seconds(profile, cluster, plain) * TOLERANCE


def test_memory_comes_before_time() -> None:
    """Where one device is fastest but too small, stages are on as many as it takes."""
    profile, fast = chain(6, batch=BATCH), star(4, bandwidth=1e3)
    need = run(profile, fast, planned("model", profile, fast, batch_size=BATCH)).report.peak_memory_bytes
    small = replace(fast, devices=tuple(replace(d, memory_bytes=int(need * 0.7)) for d in fast.devices))
    report = run(profile, small, planned("model", profile, small, batch_size=BATCH)).report
    assert report.fits and sum(device.compute_s > 0 for device in report.devices) == 2


def test_cuts_that_fit_are_found_where_the_fastest_do_not() -> None:
    """VGG-16 on 8 V100 of 16 GiB: the cut of the best pace, before the linear layers, needs 16.1 GiB."""
    profile, fast = profile_called("vgg16_v100"), read_cluster("p3-8xlarge", devices=8)
    steps_s = []
    for gigabits in (1.0, 2.0, 4.0, 8.0):
        cluster = fast.with_tier("inter", bandwidth_bytes_per_s=gigabits * 1e9 / 8)
        cluster = cluster.with_efficiency("inter", 1, "as the case has it")
        for schedule, count in (("gpipe", 4), ("1f1b", 2)):
            plan = planned("pipeline", profile, cluster, batch_size=1024, microbatches=count, schedule=schedule)
            report = run(profile, cluster, plan).report
            assert report.fits
            steps_s.append(report.step_s)
    assert steps_s[4] < 1.6, "a cut before the last pooling, at 4 Gb/s"
    for by_schedule in (steps_s[::2], steps_s[1::2]):
        assert by_schedule == sorted(by_schedule, reverse=True)


def test_a_slow_network_is_left_alone() -> None:
    """At 1 kB/s one device is faster than any cut."""
    profile, cluster = chain(6, batch=BATCH), star(4, bandwidth=1e3)
    plan = planned("pipeline", profile, cluster, batch_size=BATCH)
    assert plan.devices == (0,)


def test_what_the_step_says_holds() -> None:
    profile, cluster = chain(6, batch=BATCH), star(4)
    plan = planned("pipeline", profile, cluster, batch_size=BATCH, microbatches=4, schedule="gpipe")
    assert (plan.microbatches, plan.schedule) == (4, "gpipe")
    assert (
        planned("pipeline", profile, cluster, batch_size=BATCH, replicas=False).distinct_placements[0].degrees[0] == 1
    )
    with pytest.raises(InputError, match="chunks is 2"):
        planned("pipeline", profile, cluster, batch_size=BATCH, chunks=2)


def test_plans_are_near_up_to_a_fifth_slower_than_the_best_that_fits() -> None:
    profile, cluster = chain(2, batch=8), star(2)
    judge = Judge(profile=profile, cluster=cluster)
    assert judge.is_near(1e9)
    best = judge.consider(planned("data", profile, cluster, batch_size=8))
    assert judge.is_near(1.19 * best.cost) and not judge.is_near(1.21 * best.cost)
    judge.best = replace(best, excess_bytes=1.0)
    assert judge.is_near(1e9)


@pytest.mark.parametrize("price_s", laws.some([0.0, 1e-5], 1))
def test_the_search_is_never_worse_than_the_strongest_of_any_strategy(price_s: float) -> None:
    profile, cluster = profile_called("vgg_small"), cluster_of("switch", 4, 10.0)
    runtime = Runtime(name="priced", task_overhead_s=price_s)
    step = StepSettings(batch_size=BATCH, runtime=runtime)
    plan = make_plan("hypergraph", profile, cluster, step, effort=0.2)
    search_s = step_seconds(profile, cluster, plan, runtime)
    for name in STRATEGIES:
        verdict = best_of(simulated(Judge(profile=profile, cluster=cluster, runtime=runtime), step, name, effort=0.2))
        assert verdict is not None
        assert search_s <= verdict.step_s * (1 + 1e-9), name
        if name != "layerwise":
            plain = make_plan(name, profile, cluster, step)
            assert verdict.step_s <= step_seconds(profile, cluster, plain, runtime) * TOLERANCE


def test_more_effort_is_used() -> None:
    """VGG-16 on two nodes of 4 V100 with a slow link: the seed decides the path, on which more effort goes further."""
    profile = profile_called("vgg16_v100")
    cluster = read_cluster("p3-8xlarge", devices=8).with_tier("inter", bandwidth_bytes_per_s=0.35e9)
    cluster = cluster.with_efficiency("inter", 1, "as the case has it")
    step = StepSettings(batch_size=512)
    plans = [make_plan("hypergraph", profile, cluster, step, effort=effort, seed=1) for effort in (0.01, 0.01, 0.05)]
    little_s, again_s, more_s = (step_seconds(profile, cluster, plan) for plan in plans)
    assert little_s == again_s and more_s < 0.99 * little_s


def test_the_number_of_micro_batches_is_searched() -> None:
    """VGG-16 on two nodes of 4 V100: every strategy is the fastest with one micro-batch, but the shortest step has two.
    A search that leaves the number open finds as short a step as one that is told it."""
    profile, cluster = profile_called("vgg16_v100"), read_cluster("azure-v100-10g", devices=8)
    steps_s = {}
    for count in (1, 2, None):
        plan = make_plan("hypergraph", profile, cluster, StepSettings(batch_size=1024, microbatches=count), effort=0.1)
        steps_s[count] = step_seconds(profile, cluster, plan)
    assert steps_s[2] < 0.97 * steps_s[1]
    assert steps_s[None] <= steps_s[2] * (1 + 1e-3)


def test_micro_batches_keep_to_the_batch_and_the_parts() -> None:
    profile = chain(2, batch=8)
    plan = planned("data", profile, star(4), batch_size=8)
    assert with_microbatches(plan, 0.5) is None
    assert with_microbatches(plan, 3.0) is None
    doubled = with_microbatches(plan, 2.0)
    assert doubled == replace(plan, microbatches=2)
    assert with_microbatches(replace(plan, microbatches=2), 2.0) is None  # 2 samples for 4 parts
