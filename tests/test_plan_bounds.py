"""Lower bounds of plans: what no simulation beats, and closed forms of what they count."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import laws
import pytest
import random_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from small_networks import chain, layer, network

import partitioners
from simulator import files
from simulator.errors import InputError
from simulator.language_models.training_stack import read_stack
from simulator.lowering.schedules import SCHEDULES
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import StepSettings
from simulator.run import run
from simulator.runtime import IDEAL
from simulator.sweep.bounds import compute_bound_s, least_compute_s, memory_bound_bytes, plan_bound
from simulator.workload import ScalingPoint

WIRE = Wire(bandwidth_bytes_per_s=1e9, latency_s=1e-5)


@settings(max_examples=laws.examples(20, 60), deadline=None)
@given(st.data())
def test_no_plan_beats_the_bounds(data: st.DataObject) -> None:
    profile = data.draw(random_inputs.profiles())
    cluster = data.draw(random_inputs.clusters(max_servers=1))
    plan = data.draw(random_inputs.plans(profile, cluster))
    report = run(profile, cluster, plan).report
    assert compute_bound_s(profile, cluster, plan.batch_size) <= report.step_s * (1 + 1e-9)
    bound = plan_bound(ShardedModel(profile, plan), cluster)
    assert bound.step_s <= report.step_s and bound.peak_bytes <= report.peak_memory_bytes
    assert memory_bound_bytes(profile, cluster, plan.optimizer_state) <= report.peak_memory_bytes * (1 + 1e-9)


@pytest.mark.parametrize("microbatches", [1, 2, 8])
def test_bound_of_a_pipeline_counts_how_it_fills_and_drains(microbatches: int) -> None:
    """Stages of 1, 2 and 4 s: all of them once, and the longest once more for every further micro-batch."""
    profile, cluster = chain([1.0, 2.0, 4.0]), flat_switch(3, Wire(bandwidth_bytes_per_s=1e15))
    plan = planned("pipeline", profile, cluster, batch_size=8, microbatches=microbatches, schedule="gpipe")
    assert len(plan.devices) == 3
    report, bound = run(profile, cluster, plan).report, plan_bound(ShardedModel(profile, plan), cluster)
    assert bound.step_s == pytest.approx((7.0 + 4.0 * (microbatches - 1)) / microbatches) == report.step_s


@pytest.mark.parametrize("schedule", [name for name, schedule in SCHEDULES.items() if not schedule.turns])
def test_no_schedule_of_a_pipeline_beats_its_bound(schedule: str) -> None:
    cluster, runtimes = flat_switch(4, Wire(bandwidth_bytes_per_s=1e15)), (IDEAL, read_stack("megatron-a100").runtime)
    stages = [1.0] * 8, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 2.0, 2.0], [3.0, 3.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0]
    for seconds, runtime, microbatches in product(stages, runtimes, (4, 8)):
        profile = chain(seconds)
        profile = replace(profile, layers=tuple(replace(each, parameter_bytes=8) for each in profile.layers))
        step = StepSettings(batch_size=8, microbatches=microbatches, schedule=schedule, runtime=runtime)
        plan = partitioners.make_plan("pipeline", profile, cluster, step, judged=False)
        bound = plan_bound(ShardedModel(profile, plan), cluster, runtime)
        assert bound.step_s <= run(profile, cluster, plan, runtime=runtime).report.step_s


def test_interleaved_stages_hold_a_layer_each() -> None:
    step = StepSettings(batch_size=8, schedule="interleaved")
    with pytest.raises(InputError, match="2 devices need 4 stages, but 'small' has 3 layers"):
        partitioners.make_plan("pipeline", chain([1.0, 1.0, 1.0]), flat_switch(2, WIRE), step, judged=False)


@pytest.mark.parametrize("name", ["vgg16_v100", "bert_large_v100"])  # with one loss and with two
def test_bound_on_memory_counts_what_a_microbatch_keeps(name: str) -> None:
    profile, cluster = files.read_profile(name), flat_switch(1, WIRE)
    plan = planned("data", profile, cluster, batch_size=profile.batch_size)
    peak_bytes = run(profile, cluster, plan).report.peak_memory_bytes
    kept = sum(layer.saved_bytes for layer in profile.layers)
    assert 0.9 * kept < plan_bound(ShardedModel(profile, plan), cluster).peak_bytes - 3 * profile.parameter_bytes
    assert plan_bound(ShardedModel(profile, plan), cluster).peak_bytes <= peak_bytes


def test_compute_bound_of_proportional_layers_is_their_sum_over_the_summed_speed() -> None:
    cluster = flat_switch(3, WIRE)
    assert compute_bound_s(chain([1.0, 2.0, 3.0]), cluster, 8) == pytest.approx(6.0 / 3)
    assert compute_bound_s(chain([1.0, 2.0, 3.0]), cluster.with_speed(2), 16) == pytest.approx(12.0 / 6)


def test_compute_bound_takes_each_layer_at_its_best_measured_rate() -> None:
    """3 s at batch 8, but 1 s at batch 4 and 1 s for half of the channels: 8/4 x 1 s, then 2 x 1/3 of that."""
    points = (
        ScalingPoint(batch_size=4, forward_s=1 / 3, backward_s=2 / 3),
        ScalingPoint(batch_size=8, channel_fraction=0.5, forward_s=1 / 3, backward_s=2 / 3),
    )
    profile = network(replace(layer("a", seconds=3.0), scaling=points))
    assert least_compute_s(profile, 8) == pytest.approx(2.0 * 2 / 3)
