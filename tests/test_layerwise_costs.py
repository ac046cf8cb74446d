"""OptCNN's cost tables against closed forms, the exchange and simulation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import laws
import numpy as np
import pytest
from counted_volume import communication_volume
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, profiles
from small_networks import chain
from two_layers import linear, settings_of, switch, total_s, two_layers

from partitioners._layerwise import optcnn, region_traffic
from partitioners._layerwise.elimination import sum_of
from partitioners._layerwise.optcnn import configurations, cost_tables, sharding_of
from partitioners._network.fabric import Fabric
from simulator import collectives
from simulator.cluster import Cluster, Device, Link
from simulator.collectives.ring import ring
from simulator.curve import Curve
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Partition, Sharding
from simulator.run import step_seconds
from simulator.workload import Profile

# -- configurations and tables


def test_configurations_of_four_workers() -> None:
    """Powers of two that make at most 4 shards; 15 of them, as in the paper; where there are 3 rows, 3 as well."""
    layer = replace(two_layers().layers[0], output_shape=(16, 8, 8))
    powers = [(n, c, h, w) for n in (1, 2, 4) for c in (1, 2, 4) for h in (1, 2, 4) for w in (1, 2, 4)]
    options = configurations(layer, 8, 4)
    assert sorted(options) == sorted(degrees for degrees in powers if prod(degrees) <= 4)
    assert len(options) == 15
    narrow = replace(layer, output_shape=(1, 3, 1))
    assert configurations(narrow, 2, 4) == tuple((n, 1, h, 1) for n in (1, 2) for h in (1, 2, 3) if n * h <= 4)
    assert configurations(narrow, 2, 4, "n") == ((1, 1, 1, 1), (2, 1, 1, 1))


def test_compute_is_the_slowest_shards() -> None:
    """8 samples over 3 devices: 3 samples of 8 in 12 ms, unless a device of half the speed has the 2 of 8."""
    profile = two_layers()
    options = configurations(profile.layers[0], 8, 3)
    split, alone = options.index((3, 1, 1, 1)), options.index((1, 1, 1, 1))
    tables = cost_tables(profile, switch(3), settings_of())
    assert tables.compute_s[0][split] == pytest.approx(3 / 8 * 0.012)
    assert tables.compute_s[0][alone] == pytest.approx(0.012)
    slow = switch(3)
    slow = replace(slow, devices=(replace(slow.devices[0], speed=0.5), *slow.devices[1:]))
    assert cost_tables(profile, slow, settings_of()).compute_s[0][split] == pytest.approx(2 / 8 * 0.012 / 0.5)


def test_transfer_and_synchronisation_have_closed_forms() -> None:
    """2 devices, 512 bytes of activations: split by sample, the reader by channel, each sends half of its half.

    Parameters of 1000 bytes: a ring of two sends 1000 bytes each way in 2 rounds.
    """
    profile = two_layers(parameter_bytes=1000)
    tables = cost_tables(profile, switch(2), settings_of())
    producer, reader = tables.configurations
    by_sample, by_channel = (2, 1, 1, 1), (1, 2, 1, 1)
    edge = tables.transfer_s[0, 1]
    assert edge[producer.index(by_sample), reader.index(by_sample)] == 0
    assert edge[producer.index(by_sample), reader.index(by_channel)] == pytest.approx(2 * (256 / 1e6 + 2e-4))
    assert edge[producer.index((1, 1, 1, 1)), reader.index(by_sample)] == pytest.approx(2 * (256 / 1e6 + 2e-4))
    assert tables.synchronise_s[1][reader.index(by_sample)] == pytest.approx(1000 / 1e6 + 2 * 2e-4)
    assert tables.synchronise_s[1][reader.index(by_channel)] == 0
    received = tables.received_bytes[0, 1]
    assert received[producer.index(by_sample), reader.index(by_sample)] == 0
    assert received[producer.index(by_sample), reader.index(by_channel)] == 256
    assert received[producer.index((1, 1, 1, 1)), reader.index(by_sample)] == 256
    replicas, split = ((producer.index(by_sample), reader.index(degrees)) for degrees in (by_sample, by_channel))
    states = 2 + settings_of().optimizer_ratio  # parameters, gradients and the optimizer's
    kept_bytes = partial(sum_of, tables.held_bytes, tables.received_bytes)
    assert kept_bytes(split) - kept_bytes(replicas) == pytest.approx(256 - states * 1000 / 2)


def test_microbatches_multiply_transfers_but_not_synchronisation() -> None:
    profile = two_layers(parameter_bytes=1000)
    whole = cost_tables(profile, switch(2), settings_of())
    quartered = cost_tables(profile, switch(2), settings_of(32, microbatches=4))
    assert quartered.transfer_s[0, 1] == pytest.approx(4 * whole.transfer_s[0, 1])
    assert quartered.received_bytes[0, 1] == pytest.approx(4 * whole.received_bytes[0, 1])
    assert quartered.compute_s[0] == pytest.approx(4 * whole.compute_s[0])
    assert quartered.synchronise_s[1] == pytest.approx(whole.synchronise_s[1])


@settings(max_examples=laws.examples(25, 100), deadline=None)
@given(profiles(), clusters(), st.data())
def test_layers_compute_and_hold_what_their_shards_do(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    """Of whichever cut: the slowest shard each way, and the bytes of the one that has most."""
    step = settings_of(4)
    tables = cost_tables(profile, cluster, step)
    speeds = np.array(cluster.speeds)
    for position, layer in enumerate(profile.layers):
        number = data.draw(st.integers(0, len(tables.configurations[position]) - 1))
        degrees = tables.configurations[position][number]
        placements = {other.name: Sharding(devices=(0,)) for other in profile.layers}
        placements[layer.name] = sharding_of(degrees)
        model = ShardedModel(profile, step.plan(profile, Partition(placements=placements)))
        seconds = model.pass_seconds(position) / speeds[list(sharding_of(degrees).devices)]
        assert tables.compute_s[position][number] == pytest.approx(seconds.max(axis=1).sum())
        extents = [-(-extent // degree) for extent, degree in zip((4, *layer.output_shape), degrees, strict=True)]
        share = extents[1] / layer.channels
        saved = layer.saved_bytes / profile.batch_size * prod(extents) / prod(layer.output_shape)
        states = layer.parameter_bytes * (2 + step.optimizer_ratio) * share
        assert tables.held_bytes[position][number] == pytest.approx(states + saved)


@settings(max_examples=laws.examples(15, 40), deadline=None)
@given(st.data())
def test_edge_tables_count_what_the_exchange_counts(source: st.DataObject) -> None:
    """Over a bus of 1 byte/s the edges' seconds are the bytes that the plan moves, if no layer has two readers.

    With two, OptCNN counts a piece for each, so the edges are an upper bound.
    """
    profile = source.draw(profiles())
    workers = source.draw(st.integers(1, 5))
    bus = [Link(source="in", target="out", bandwidth_bytes_per_s=1.0)]
    ends = [(f"d{i}", "in") for i in range(workers)] + [("out", f"d{i}") for i in range(workers)]
    links = [*bus, *(Link(source=a, target=b, bandwidth_bytes_per_s=1e12) for a, b in ends)]
    devices = tuple(Device(name=f"d{i}", host="h") for i in range(workers))
    cluster = Cluster(name="bus", devices=devices, links=tuple(links))
    tables = cost_tables(profile, cluster, settings_of(4))
    strategy = [source.draw(st.integers(0, len(options) - 1)) for options in tables.configurations]
    choices = zip(profile.layers, tables.configurations, strategy, strict=True)
    placements = {layer.name: sharding_of(options[i]) for layer, options, i in choices}
    volume = communication_volume(
        ShardedModel(profile, settings_of(4).plan(profile, Partition(placements=placements))), cluster
    )
    total = sum(float(table[strategy[i], strategy[j]]) for (i, j), table in tables.transfer_s.items())
    if all(len(readers) < 2 for readers in profile.consumers):
        assert total == pytest.approx(volume.forward + volume.backward)
    assert total >= (volume.forward + volume.backward) * (1 - 1e-12)


# -- closed forms of traffic


def test_servers_are_pushed_to_updated_and_pulled_from_in_turn() -> None:
    """3 workers, 1 server: its link carries 3 x 500 bytes in and out again, with the update between them."""
    cluster = switch(3, servers=1)
    steps = collectives.load("ps").tasks(cluster, (0, 1, 2), 500, 0.002)
    fabric = Fabric.of(cluster, 4)
    assert fabric.waves_s(fabric.wiring.waves([steps])) == pytest.approx(2 * (1500e-6 + 2e-4) + 0.002)
    assert fabric.waves_s(fabric.wiring.waves([steps, steps])) == pytest.approx(2 * (3000e-6 + 2e-4) + 0.004)


@settings(max_examples=laws.examples(15, 30), deadline=None)
@given(clusters(max_servers=0), st.integers(0, 2**31))
def test_links_carry_what_crosses_them(cluster: Cluster, seed: int) -> None:
    """Added up by sets of devices, or pair by pair over the routes."""
    devices = cluster.workers
    fabric = Fabric.of(cluster, devices)
    sizes = np.random.default_rng(seed).integers(0, 100, (3, devices, devices)) * (1 - np.eye(devices))
    traffic = fabric.wiring.traffic(sizes)
    for way, of_way in enumerate((sizes, sizes.swapaxes(1, 2))):
        carried = np.zeros((len(sizes), len(cluster.links)))
        for source, target in np.ndindex(devices, devices):
            for link in cluster.route(source, target):
                carried[:, link] += of_way[:, source, target]
        for kind, busiest_bytes in enumerate(traffic.busiest_bytes):
            links = [link for link, number in enumerate(fabric.wiring.link_kinds) if number == kind]
            assert busiest_bytes[way] == pytest.approx(carried[:, links].max(axis=1))
        kinds = np.array(fabric.wiring.pair_kinds).reshape(devices, devices)
        for kind, moving in enumerate(traffic.moving):
            assert (moving[way] > 0).tolist() == (of_way[:, kinds == kind] > 0).any(axis=1).tolist()


def test_a_measured_curve_replaces_latency_and_bandwidth() -> None:
    """Points of 0.5 ms per message and then 2 MB/s."""
    curve = Curve(points=((1000, 0.001), (2000, 0.0015), (4000, 0.0025)))
    fabric = Fabric.of(switch(2, curve=curve), 2)
    sizes = np.array([[[0.0, 4000.0], [0.0, 0.0]], [[0.0, 2000.0], [4000.0, 0.0]]])
    assert fabric.seconds(fabric.wiring.traffic(sizes)) == pytest.approx([2 * 0.0025, 2 * 0.0025])
    assert fabric.waves_s(fabric.wiring.waves([ring(switch(2), (0, 1), 4000)])) == pytest.approx(2 * 0.0015)


def test_a_measured_collective_stands_as_it_is() -> None:
    curve = Curve(points=((1000, 0.001), (2000, 0.0015)))
    cluster = replace(switch(2), collectives={"all_reduce": {2: curve}})
    fabric = Fabric.of(cluster, 2)
    assert fabric.waves_s(fabric.wiring.waves([ring(cluster, (0, 1), 2000)])) == pytest.approx(0.0015)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_chain_without_parameters_is_simulated_in_its_sum(source: st.DataObject) -> None:
    """Each layer split by sample the same way or whole: nothing overlaps, so the sum is the step."""
    seconds = source.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    names = [f"l{i}" for i in range(len(seconds))]
    layers = [linear(name, (names[i - 1],) if i else (), 4, 0, seconds[i] * 1e-4) for i, name in enumerate(names)]
    profile = Profile(model="chain", device="none", batch_size=8, layers=tuple(layers))
    cluster = switch(2)
    tables = cost_tables(profile, cluster, settings_of(), "n")
    strategy = [source.draw(st.integers(0, 1)) for _ in layers]
    choices = zip(layers, tables.configurations, strategy, strict=True)
    plan = settings_of().plan(
        profile, Partition(placements={layer.name: sharding_of(options[i]) for layer, options, i in choices})
    )
    # what stays on a device runs on while the other half is on its way, so the sum is an upper bound
    assert step_seconds(profile, cluster, plan) <= total_s(tables, strategy) * (1 + 1e-9)
    if len(set(strategy)) == 1:
        assert step_seconds(profile, cluster, plan) == pytest.approx(total_s(tables, strategy))


def test_tables_do_not_depend_on_how_they_are_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cost_tables(two_layers(), switch(3), settings_of())
    monkeypatch.setattr(region_traffic, "_ENTRIES", 1)
    optcnn._traffic.cache_clear()
    assert (cost_tables(two_layers(), switch(3), settings_of()).transfer_s[0, 1] == whole.transfer_s[0, 1]).all()


def test_clusters_that_differ_in_bandwidth_alone_share_what_their_links_carry() -> None:
    """A quarter of the bandwidth: what is not latency takes four times as long, and equals tables made afresh."""
    profile, fast = two_layers(parameter_bytes=1000), switch(3)
    slow = fast.with_tier("link", bandwidth_bytes_per_s=250e3)
    optcnn._traffic.cache_clear()
    first, second = (cost_tables(profile, cluster, settings_of()) for cluster in (fast, slow))
    assert (optcnn._traffic.cache_info().misses, optcnn._traffic.cache_info().hits) == (1, 1)
    waits_s = np.where(first.transfer_s[0, 1] > 0, 2 * 2e-4, 0.0)
    np.testing.assert_allclose(second.transfer_s[0, 1] - waits_s, 4 * (first.transfer_s[0, 1] - waits_s), atol=1e-15)
    optcnn._traffic.cache_clear()
    afresh = cost_tables(profile, slow, settings_of())
    assert (afresh.transfer_s[0, 1] == second.transfer_s[0, 1]).all()
    assert (second.synchronise_s[0] >= first.synchronise_s[0]).all()


def test_layers_are_read_alike_whatever_they_cost() -> None:
    """Of three layers of one shape the first two are read alike and the last by nobody; no two cost the same."""
    profile = chain([1.0, 2.0, 3.0])
    assert profile.read_alike == (0, 0, 2) and profile.alike == (0, 1, 2)
    tables = cost_tables(profile, switch(2), settings_of(profile.batch_size))
    assert np.array_equal(tables.transfer_s[0, 1], tables.transfer_s[1, 2])
