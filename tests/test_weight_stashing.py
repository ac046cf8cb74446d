"""PipeDream with replicated stages: sums and updates after every mini-batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted_volume import communication_volume
from test_closed_forms import chain, star

from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.weight_stashing import stashed_bytes
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.taskgraph import Kind
from simulator.workload import Profile


def plan_of(profile: Profile, stages: list[tuple[int, ...]], minibatches: int, samples: int) -> Plan:
    """Equal runs of layers on the devices of each stage, split by sample inside it."""
    per_stage = len(profile.layers) // len(stages)
    placements = {
        layer.name: Sharding(degrees=(len(devices), 1, 1, 1), devices=devices)
        for position, layer in enumerate(profile.layers)
        for devices in [stages[position // per_stage]]
    }
    return Plan(
        model=profile.model,
        batch_size=samples * minibatches,
        microbatches=minibatches,
        placements=placements,
        schedule="pipedream",
    )


@pytest.mark.parametrize("minibatches", [1, 3])
def test_one_replicated_stage_is_data_parallelism_step_after_step(minibatches: int) -> None:
    profile = chain(4, batch=12)
    stashed = plan_of(profile, [(0, 1, 2)], minibatches, 12)
    single = replace(stashed, microbatches=1, batch_size=12, schedule="dataflow")
    step_s = run(profile, star(3), single).report.step_s
    assert run(profile, star(3), stashed).report.step_s == pytest.approx(minibatches * step_s, rel=1e-12)


def test_fifteen_one_in_small() -> None:
    """Three replicas of the first stage and one device for the second (PipeDream, SOSP 2019, figure 10: 15-1)."""
    profile = chain(4, batch=12)
    plan = plan_of(profile, [(0, 1, 2), (3,)], 5, 12)
    done = run(profile, star(4), plan)
    sums = 5 * 2 * (3 - 1) * sum(layer.parameter_bytes for layer in profile.layers[:2])
    assert communication_volume(ShardedModel(profile, plan), star(4)).synchronisation == sums
    assert done.report.communication_bytes.synchronisation == pytest.approx(sums)
    updates = done.graph.device[done.graph.kind == Kind.UPDATE]
    assert np.bincount(updates, minlength=4).tolist() == [5, 5, 5, 5]
    versions = stashed_bytes(ShardedModel(profile, plan), star(4))
    assert versions.tolist() == [2 * 10**6] * 3 + [0]


def test_a_forward_pass_waits_for_the_update_of_its_version() -> None:
    """Two stages stash two versions: mini-batch 2 of the first stage starts after the update of mini-batch 0."""
    profile = chain(2, batch=4, parameter_bytes=10**7)
    done = run(profile, star(3), plan_of(profile, [(0, 1), (2,)], 4, 4))
    graph, timeline = done.graph, done.timeline
    on_first = graph.device == 0
    start = {m: timeline.start_s[on_first & (graph.kind == Kind.FORWARD) & (graph.microbatch == m)] for m in range(4)}
    end = {m: timeline.end_s[on_first & (graph.kind == Kind.UPDATE) & (graph.microbatch == m)] for m in range(4)}
    assert all(start[m + 2].min() >= end[m].max() for m in range(2))


def test_two_versions_instead_of_one_for_each_stage() -> None:
    """PipeDream-2BW (Narayanan et al., ICML 2021, section 3.1): an update for every three micro-batches, in the time of
    PipeDream without its updates, with one stashed version on each of three stages where PipeDream has 2, 1 and 0."""
    profile = chain(3, batch=12)
    before = plan_of(profile, [(0,), (1,), (2,)], 6, 12)
    plan = replace(before, schedule="pipedream-2bw")
    done = run(profile, star(3), plan)
    assert np.bincount(done.graph.device[done.graph.kind == Kind.UPDATE], minlength=3).tolist() == [2, 2, 2]
    parameters = [layer.parameter_bytes for layer in profile.layers]
    stashed, versions = (stashed_bytes(ShardedModel(profile, p), star(3)).tolist() for p in (before, plan))
    assert stashed == [2 * parameters[0], parameters[1], 0] and versions == parameters
    assert done.report.step_s == pytest.approx(run(profile, star(3), before).report.step_s, rel=1e-9)


def test_replicas_of_a_stage_sum_once_for_each_of_its_mini_batches() -> None:
    profile = chain(4, batch=12)
    plan = replace(plan_of(profile, [(0, 1, 2), (3,)], 4, 12), schedule="pipedream-2bw")
    sums = 2 * 2 * (3 - 1) * sum(layer.parameter_bytes for layer in profile.layers[:2])
    assert communication_volume(ShardedModel(profile, plan), star(4)).synchronisation == sums
    assert run(profile, star(4), plan).report.communication_bytes.synchronisation == pytest.approx(sums)
    with pytest.raises(InputError, match="adds up the gradients of 2 at a time"):
        run(profile, star(4), replace(plan, microbatches=3, batch_size=36))


def test_the_third_mini_batch_waits_for_the_update_of_the_first() -> None:
    profile = replace(chain(2, batch=4, parameter_bytes=10**7))
    profile = replace(profile, layers=tuple(replace(layer, update_s=9.0) for layer in profile.layers))
    done = run(profile, star(2), replace(plan_of(profile, [(0,), (1,)], 6, 4), schedule="pipedream-2bw"))
    graph, timeline = done.graph, done.timeline
    on_first = graph.device == 0
    forward = {
        m: timeline.start_s[on_first & (graph.kind == Kind.FORWARD) & (graph.microbatch == m)].min() for m in range(6)
    }
    update = timeline.end_s[on_first & (graph.kind == Kind.UPDATE) & (graph.microbatch == 1)].max()
    assert forward[2] < update <= forward[4]
