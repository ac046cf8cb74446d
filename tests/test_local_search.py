"""The changes that the hypergraph search tries: groups of layers, the ways to cut them, and what a plan promises."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain as joined

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from test_closed_forms import chain, star

from partitioners._judge import Judge
from partitioners._layer_groups import GroupCut, cuts, layer_groups
from partitioners._loads import LoadTables
from partitioners._local_search import improve
from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.transfers import link_bytes
from simulator.plan import Plan, Sharding
from simulator.run import lowered, step_seconds
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Geometry, Profile

PRICE_S = 1e-5


@settings(max_examples=50, deadline=None)
@given(profiles())
def test_every_layer_is_in_one_group_and_followers_read_one_layer_of_theirs(profile: Profile) -> None:
    groups = layer_groups(profile)
    assert sorted(joined.from_iterable(groups)) == sorted(layer.name for layer in profile.layers)
    for group in groups:
        for name in group[1:]:
            layer = profile.layers[profile.index[name]]
            assert len(layer.inputs) == 1 and layer.inputs[0] in group and not layer.geometry.mixes_channels
            assert len(profile.consumers[profile.index[layer.inputs[0]]]) == 1


@settings(max_examples=50, deadline=None)
@given(profiles(max_layers=4), clusters(), st.data())
def test_every_cut_of_groups_can_run(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    groups = layer_groups(profile)[: data.draw(st.integers(1, 3))]
    whole = {layer.name: Sharding(devices=(0,)) for layer in profile.layers}
    cut = data.draw(st.sampled_from(list(cuts(tuple(range(cluster.workers))))))
    placements = cut.placements(profile, groups, samples=4)
    if placements is not None:
        plan = Plan(model=profile.model, batch_size=8, microbatches=2, placements={**whole, **placements})
        assert step_seconds(profile, cluster, plan) >= 0


def linear_network() -> Profile:
    """A linear layer, another with an activation behind it, a third."""
    layers = chain(4).layers
    mixing = Geometry(mixes_channels=True)
    changed = (layers[0], replace(layers[1], geometry=mixing), replace(layers[2], kind="relu", geometry=Geometry()))
    return replace(chain(4), layers=(*changed, replace(layers[3], geometry=mixing)))


def test_cuts_of_a_linear_layer_by_hand() -> None:
    """Four devices as 2 x 2: by channel, or as terms whose sum goes to channels or to samples."""
    profile, devices = linear_network(), (0, 1, 2, 3)
    groups = layer_groups(profile)
    assert groups == [("l0",), ("l1", "l2"), ("l3",)]

    def cut(**ways: object) -> list[tuple[tuple[int, ...], int]]:
        placements = GroupCut(devices, 2, **ways).placements(profile, groups, 48)  # type: ignore[arg-type]
        assert placements is not None
        return [(placements[layer.name].degrees[:2], placements[layer.name].reduce) for layer in profile.layers]

    assert cut() == [((2, 2), 1)] * 4
    assert cut(terms="all") == [((2, 2), 1), ((2, 1), 2), ((2, 2), 1), ((2, 2), 1)]  # nobody adds the last one's terms
    assert cut(terms="all", to_samples=True)[2] == ((4, 1), 1)
    assert GroupCut(devices, 4).placements(profile, groups, samples=3) is None
    assert len(list(cuts(devices))) == 1 + 2 * 5


@settings(max_examples=50, deadline=None)
@given(profiles(), clusters(), st.data())
def test_loads_are_those_of_the_plan_and_add_up_after_changes(
    profile: Profile, cluster: Cluster, data: st.DataObject
) -> None:
    """Compute by device and bytes by link of one plan, asked for directly and as a change of another."""
    plan, other = (data.draw(plans(profile, cluster, every_axis=True)) for _ in range(2))
    other = replace(other, batch_size=plan.batch_size, microbatches=plan.microbatches)
    tables = LoadTables(profile=profile, cluster=cluster, runtime=IDEAL)
    loads = tables.of(plan)
    model = ShardedModel(profile, plan)
    compute_s = np.zeros(len(cluster.devices))
    for position, devices in enumerate(model.devices):
        np.add.at(compute_s, devices, model.pass_seconds(position).sum(axis=0) * plan.microbatches)
    assert loads.total_s[: len(compute_s)] == pytest.approx(compute_s / np.array(cluster.speeds))
    try:
        after = tables.after(tables.of(other), plan, plan.placements)
    except ValueError:  # the other's cuts are finer than the batch of this one
        return
    assert after.total_s == pytest.approx(loads.total_s, rel=1e-9, abs=1e-9)


def test_links_carry_the_loads_and_tasks_have_their_price() -> None:
    profile, cluster = linear_network(), star(4)
    devices = (0, 1, 2, 3)
    placements = GroupCut(devices, 2, "all").placements(profile, layer_groups(profile), 24)
    assert placements is not None
    plan = Plan(model=profile.model, batch_size=48, microbatches=2, placements=placements)
    tables = LoadTables(profile=profile, cluster=cluster, runtime=Runtime(name="priced", task_overhead_s=PRICE_S))
    loads = tables.of(plan)
    exchanges_s, synchronisation_s = np.split(loads.total_s[4:], 2)
    carried = link_bytes(lowered(profile, cluster, plan).graph, cluster)
    bandwidths = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
    assert exchanges_s + synchronisation_s == pytest.approx(carried / bandwidths)
    free = LoadTables(profile=profile, cluster=cluster, runtime=IDEAL).of(plan)
    assert loads.total_s[:4] - free.total_s[:4] == pytest.approx(4 * 2 * 2 * PRICE_S)  # layers, passes, micro-batches


def test_a_wide_input_is_cut_into_terms() -> None:
    """64 times more channels in than out: to gather them costs more than to sum what comes of their parts."""
    layers = chain(3, parameter_bytes=4 * 10**7).layers
    wide = replace(layers[0], output_shape=(4096, 1, 1), output_bytes=48 * 4096 * 4, parameter_bytes=0, kind="input")
    linear = replace(
        layers[1], output_shape=(64, 1, 1), output_bytes=48 * 64 * 4, geometry=Geometry(mixes_channels=True)
    )
    last = replace(layers[2], output_shape=(64, 1, 1), output_bytes=48 * 64 * 4, kind="relu", geometry=Geometry())
    profile, cluster = replace(chain(3), layers=(wide, linear, last)), star(4, bandwidth=1e7)
    sharding = Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 2, 3))
    plan = Plan(model=profile.model, batch_size=48, placements={layer.name: sharding for layer in profile.layers})
    judge = Judge(profile=profile, cluster=cluster)
    start = judge.consider(plan)
    judge.budget = 10**5
    improve(judge, [start], patience=40, microbatches=False)
    assert judge.best is not None and judge.best.step_s < 0.2 * start.step_s
    assert judge.best.plan.placements["l1"].reduce == 4
