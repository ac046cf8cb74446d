"""The hypergraph: its cut is the plan's volume, its weights are the plan's loads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from counted_volume import communication_volume
from hypothesis import given
from hypothesis import strategies as st
from plan_hypergraph import connectivity, plan_hypergraph
from random_inputs import clusters, plans, profiles
from test_closed_forms import chain, star

from partitioners._hypergraphs.hmetis import to_hgr
from partitioners._hypergraphs.hypergraph import Hypergraph, build, exact_grid, grid_of
from partitioners._hypergraphs.kahypar import cut
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import EXCHANGES, Plan, Synchronisation
from simulator.run import run
from simulator.workload import Geometry, Profile


@st.composite
def cases(draw: st.DrawFn, spatial: bool) -> tuple[Profile, Cluster, Plan]:
    profile = draw(profiles())
    cluster = draw(clusters())
    plan = draw(plans(profile, cluster, spatial=spatial))
    ring = Synchronisation(bucket_bytes=draw(st.sampled_from((0, 10**9))))
    return profile, cluster, replace(plan, synchronisation=ring)


@given(st.booleans().flatmap(lambda spatial: cases(spatial=spatial)))
def test_cut_is_plan_volume_is_simulated_bytes(case: tuple[Profile, Cluster, Plan]) -> None:
    """Also with halos: a piece is what the same shards read, so overlaps count once."""
    profile, cluster, plan = case
    hypergraph = build(profile, exact_grid(plan, profile))
    parts = [device for layer in profile.layers for device in plan.placements[layer.name].devices]
    volume = communication_volume(ShardedModel(profile, plan), cluster).total
    assert connectivity(hypergraph, parts) == pytest.approx(volume, rel=1e-9)
    assert run(profile, cluster, plan).report.communication_bytes.total == pytest.approx(volume, rel=1e-9)


@given(st.data())
def test_the_law_holds_over_all_axes(data: st.DataObject) -> None:
    """Sums and copies too: the cut is the volume, is what messages carry, is what collectives carry."""
    profile, cluster = data.draw(profiles(max_layers=4)), data.draw(clusters())
    plan = data.draw(plans(profile, cluster, every_axis=True))
    plan = replace(plan, synchronisation=Synchronisation(bucket_bytes=data.draw(st.sampled_from((0, 10**9)))))
    hypergraph, parts = plan_hypergraph(ShardedModel(profile, plan))
    cut_bytes = connectivity(hypergraph, parts)
    for exchange in EXCHANGES:
        crossing = replace(plan, exchange=exchange)
        volume = communication_volume(ShardedModel(profile, crossing), cluster).total
        assert volume == pytest.approx(cut_bytes, rel=1e-9)
        assert run(profile, cluster, crossing).report.communication_bytes.total == pytest.approx(volume, rel=1e-9)


@given(profiles(), st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_fused_grid_cut_is_the_volume_of_its_placements(
    profile: Profile, samples: int, channels: int, random: object
) -> None:
    grid = grid_of(profile, samples, channels, batch_size=12)
    parts = [random.randrange(3) for _ in range(grid.vertices)]  # type: ignore[attr-defined]
    plan = Plan(model="random", batch_size=12, placements=grid.placements(profile, parts))
    volume = communication_volume(ShardedModel(profile, plan), star(3)).total
    assert connectivity(build(profile, grid), parts) == pytest.approx(volume, rel=1e-9)


@given(cases(spatial=True))
def test_vertex_weights_are_compute_seconds(case: tuple[Profile, Cluster, Plan]) -> None:
    """All but additions of gradients, which depend on where the vertices go."""
    profile, cluster, plan = case
    profile = replace(profile, layers=tuple(replace(layer, update_s=0.0) for layer in profile.layers))
    weights = build(profile, exact_grid(plan, profile)).vertex_weights
    even = replace(cluster, devices=tuple(replace(device, speed=1.0) for device in cluster.devices))
    report = run(profile, even, plan).report
    assert weights.sum() == pytest.approx(sum(layer.compute_s for layer in report.layers), rel=1e-9, abs=1e-15)


def test_nets_of_a_small_chain_by_hand() -> None:
    """Two fully connected layers of 8 channels, 2 x 2 slots each, batch 4, 4 bytes an element."""
    profile = chain(2, parameter_bytes=1000, batch=4)
    mixing = tuple(replace(layer, geometry=Geometry(mixes_channels=True)) for layer in profile.layers)
    profile = replace(profile, layers=mixing)
    hypergraph = build(profile, grid_of(profile, 2, 2, batch_size=4))
    start = hypergraph.net_start.tolist()
    weights = hypergraph.net_weights.tolist()
    nets = {tuple(hypergraph.pins[a:b].tolist()): w for (a, b), w in zip(pairwise(start), weights, strict=True)}
    piece = 2 * 4 * 4  # samples x channels x bytes
    assert nets == {
        (0, 4, 5): 2 * piece,  # sample slot 0, channels 0-3: read by both channel slots of the next layer
        (1, 4, 5): 2 * piece,
        (2, 6, 7): 2 * piece,
        (3, 6, 7): 2 * piece,
        (0, 2): 2 * 500,  # channel slot 0 of the parameters, used by both sample slots
        (1, 3): 2 * 500,
        (4, 6): 2 * 500,
        (5, 7): 2 * 500,
    }
    by_sample = [0, 0, 1, 1] * 2
    by_channel = [0, 1, 0, 1] * 2
    assert connectivity(hypergraph, by_sample) == 2 * 2 * 1000  # data parallelism: 2 (m - 1) |w|
    assert connectivity(hypergraph, by_channel) == 4 * 2 * piece  # all of the activation, there and back
    assert hypergraph.imbalance([0, 0, 0, 0, 1, 1, 1, 1], [0.5, 0.5]) == pytest.approx(0)
    assert hypergraph.imbalance([0, 0, 0, 0, 0, 0, 1, 1], [0.5, 0.5]) == pytest.approx(0.5)


def test_elementwise_layers_share_their_producers_vertices() -> None:
    profile = chain(4)
    mixing = replace(profile.layers[2], geometry=Geometry(mixes_channels=True))
    profile = replace(profile, layers=(*profile.layers[:2], mixing, profile.layers[3]))
    grid = grid_of(profile, 2, 4, batch_size=48)
    assert [int(vertex[0]) for vertex in grid.vertex] == [0, 0, 8, 8]
    assert grid.vertices == 16


def test_cut_is_balanced_deterministic_and_beats_chance() -> None:
    profile = chain(12, batch=64)
    mixing = tuple(replace(layer, geometry=Geometry(mixes_channels=True)) for layer in profile.layers)
    hypergraph = build(replace(profile, layers=mixing), grid_of(replace(profile, layers=mixing), 4, 4, batch_size=64))
    parts = cut(hypergraph, [0.25] * 4, seed=3)
    assert (parts == cut(hypergraph, [0.25] * 4, seed=3)).all()
    assert hypergraph.imbalance(parts, [0.25] * 4) <= 0.03 + 1e-6
    random = np.random.default_rng(0).integers(0, 4, len(parts))
    assert connectivity(hypergraph, parts) < connectivity(hypergraph, random) / 3


def test_parts_follow_unequal_shares() -> None:
    profile = chain(12, batch=64)
    mixing = tuple(replace(layer, geometry=Geometry(mixes_channels=True)) for layer in profile.layers)
    hypergraph = build(replace(profile, layers=mixing), grid_of(replace(profile, layers=mixing), 4, 4, batch_size=64))
    shares = [0.5, 0.25, 0.125, 0.125]
    parts = cut(hypergraph, shares, imbalance=0.1, seed=0)
    assert hypergraph.imbalance(parts, shares) <= 0.1 + 1e-6


def test_fixed_vertices_stay() -> None:
    hypergraph = build(chain(6), grid_of(chain(6), 4, 4, batch_size=48))
    parts = cut(hypergraph, [0.5, 0.5], seed=0, fixed={0: 1, 5: 0})
    assert (parts[0], parts[5]) == (1, 0)


def test_without_nets_longest_first() -> None:
    empty = np.zeros(0, dtype=np.int64)
    hypergraph = Hypergraph(
        vertex_weights=np.array([3.0, 3.0, 2.0, 2.0, 2.0]),
        net_weights=np.zeros(0),
        net_start=np.zeros(1, dtype=np.int64),
        pins=empty,
    )
    loads = np.bincount(cut(hypergraph, [0.5, 0.5]), weights=hypergraph.vertex_weights)
    assert sorted(loads) == [5.0, 7.0]
    assert connectivity(hypergraph, [0, 0, 1, 1, 1]) == 0


def test_more_devices_than_shards_says_so() -> None:
    hypergraph = build(chain(2), grid_of(chain(2), 1, 2, batch_size=48))
    with pytest.raises(InputError, match=r"4 devices but only 2 shards.*finer grid or 2 devices"):
        cut(hypergraph, [0.25] * 4)


def test_more_sample_slots_than_samples_says_so() -> None:
    with pytest.raises(InputError, match="8 sample slots for micro-batches of 4 samples"):
        grid_of(chain(2), 8, 1, batch_size=4)


def test_a_hypergraph_file_has_a_line_per_net_and_per_vertex() -> None:
    """hMETIS's text: a net's weight in bytes and its vertices from 1, then every vertex's nanoseconds."""
    hypergraph = build(chain(3), grid_of(chain(3), 2, 2, batch_size=48))
    header, *lines = ([int(word) for word in line.split()] for line in to_hgr(hypergraph).splitlines())
    nets, vertices = len(hypergraph.net_weights), len(hypergraph.vertex_weights)
    assert header == [nets, vertices, 11] and len(lines) == nets + vertices
    assert [line[0] for line in lines[:nets]] == pytest.approx(hypergraph.net_weights.tolist())
    assert [pin - 1 for line in lines[:nets] for pin in line[1:]] == hypergraph.pins.tolist()
    assert [line[0] / 1e9 for line in lines[nets:]] == pytest.approx(hypergraph.vertex_weights.tolist())
