"""OptCNN's search against enumeration, its tables against exchange and simulation, its options."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_inputs import clusters, profiles

from partitioners import _elimination, data, owt
from partitioners._elimination import least_sum
from partitioners._fabric import Fabric
from partitioners._optcnn import CostTables, configurations, cost_tables, placement_of
from partitioners.layerwise import partition
from simulator.cluster import Cluster, Curve, Device, Link
from simulator.collectives import parameter_server, ring
from simulator.errors import InputError, UnknownNameError
from simulator.plan import Plan, Synchronisation
from simulator.run import run, step_seconds
from simulator.units import parse_bytes
from simulator.volume import communication_volume
from simulator.workload import Geometry, Layer, Profile, ScalingPoint


def switch(workers: int, servers: int = 0, *, memory_bytes: int | None = None, curve: Curve | None = None) -> Cluster:
    """Devices on one switch at 1 MB/s each way and 0.1 ms a link."""
    roles = ["worker"] * workers + ["server"] * servers
    devices = tuple(
        Device(name=f"d{i}", host=f"h{i}", role=role, memory_bytes=memory_bytes) for i, role in enumerate(roles)
    )
    ends = [pair for device in devices for pair in ((device.name, "switch"), ("switch", device.name))]
    links = [Link(source=a, target=b, bandwidth_bytes_per_s=1e6, latency_s=1e-4, curve=curve) for a, b in ends]
    return Cluster(name="switch", devices=devices, links=tuple(links))


def linear(name: str, inputs: tuple[str, ...], channels: int, parameter_bytes: int, seconds: float) -> Layer:
    return Layer(
        name=name,
        kind="linear",
        inputs=inputs,
        output_shape=(channels, 1, 1),
        forward_s=seconds,
        backward_s=2 * seconds,
        parameter_bytes=parameter_bytes,
        output_bytes=4 * 8 * channels,
        saved_bytes=4 * 8 * channels,
        geometry=Geometry(kernel=None, mixes_channels=True),
    )


def two_layers(parameter_bytes: int = 0) -> Profile:
    """8 samples through 16 and then 4 channels."""
    layers = linear("a", (), 16, 0, 0.004), linear("b", ("a",), 4, parameter_bytes, 0.002)
    return Profile(model="two", device="none", batch_size=8, layers=layers)


def template(profile: Profile, batch_size: int = 8, **changes: object) -> Plan:
    return replace(Plan(model=profile.model, batch_size=batch_size, placements={}), **changes)


def enumerated(tables: CostTables) -> float:
    """The least total over every strategy, all of them added up side by side."""
    count = len(tables.configurations)
    total = np.zeros(())
    for i in range(count):
        shape = [-1 if axis == i else 1 for axis in range(count)]
        total = total + (tables.compute_s[i] + tables.synchronise_s[i]).reshape(shape)
    for (i, j), table in tables.transfer_s.items():
        total = total + table.reshape(
            [table.shape[(i, j).index(axis)] if axis in (i, j) else 1 for axis in range(count)]
        )
    return float(total.min())


def strategy_of(plan: Plan, profile: Profile, tables: CostTables) -> list[int]:
    columns = zip(profile.layers, tables.configurations, strict=True)
    return [options.index(plan.placements[layer.name].degrees) for layer, options in columns]


# -- elimination


def test_a_chain_is_solved_by_hand() -> None:
    """0 - 1 - 2: staying costs the nodes 1 + 5 + 1, changing at both edges costs 2 x 1 + 1 + 0 + 1."""
    nodes = [np.array([1.0, 9.0]), np.array([5.0, 0.0]), np.array([1.0, 9.0])]
    change = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert least_sum(nodes, {(0, 1): change, (1, 2): change}) == (4.0, [0, 1, 0])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_graph_is_solved_as_by_enumeration(source: st.DataObject) -> None:
    """Up to 6 nodes with any edges, complete graphs and unconnected parts included."""
    sizes = source.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    rng = np.random.default_rng(source.draw(st.integers(0, 2**32)))
    nodes = [rng.integers(0, 30, size).astype(float) for size in sizes]
    pairs = [(i, j) for j in range(len(sizes)) for i in range(j)]
    kept = source.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = {(i, j): rng.integers(0, 30, (sizes[i], sizes[j])).astype(float) for i, j in kept}
    every = {
        choice: sum(node[c] for node, c in zip(nodes, choice, strict=True))
        + sum(table[choice[i], choice[j]] for (i, j), table in edges.items())
        for choice in np.ndindex(*sizes)
    }
    least, chosen = least_sum(nodes, edges)
    assert least == min(every.values()) == every[tuple(chosen)]


def test_too_entangled_a_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_elimination, "MOST_ENTRIES", 8)
    edges = {(i, j): np.zeros((3, 3)) for j in range(4) for i in range(j)}
    with pytest.raises(InputError, match="27 entries, and at most 8"):
        least_sum([np.zeros(3)] * 4, edges)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_plan_is_optimal_on_random_networks(source: st.DataObject) -> None:
    profile = source.draw(profiles(max_layers=5))
    cluster = source.draw(clusters(max_workers=3, max_servers=1))
    batch_size = source.draw(st.integers(1, 6))
    sync = Synchronisation(collective="ps" if cluster.servers else "ring")
    tables = cost_tables(profile, cluster, template(profile, batch_size, synchronisation=sync))
    assume(prod(map(len, tables.configurations)) < 200_000)
    plan = partition(profile, cluster, batch_size=batch_size, synchronisation=sync)
    assert tables.total_s(strategy_of(plan, profile, tables)) == pytest.approx(enumerated(tables), rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_dearer_than_data_parallelism_and_one_weird_trick(source: st.DataObject) -> None:
    profile, cluster = source.draw(profiles()), source.draw(clusters(max_workers=8))
    batch_size = source.draw(st.integers(cluster.workers, 16))
    tables = cost_tables(profile, cluster, template(profile, batch_size))
    found, *others = (
        tables.total_s(strategy_of(strategy(profile, cluster, batch_size=batch_size), profile, tables))
        for strategy in (partition, data.partition, owt.partition)
    )
    assert found <= min(others) * (1 + 1e-12)


# -- configurations and tables


def test_configurations_of_four_workers() -> None:
    """Powers of two that make at most 4 shards; 15 of them, as in the paper; where there are 3 rows, 3 as well."""
    layer = replace(two_layers().layers[0], output_shape=(16, 8, 8))
    powers = [(n, c, h, w) for n in (1, 2, 4) for c in (1, 2, 4) for h in (1, 2, 4) for w in (1, 2, 4)]
    found = configurations(layer, 8, 4)
    assert sorted(found) == sorted(degrees for degrees in powers if prod(degrees) <= 4)
    assert len(found) == 15
    narrow = replace(layer, output_shape=(1, 3, 1))
    assert configurations(narrow, 2, 4) == tuple((n, 1, h, 1) for n in (1, 2) for h in (1, 2, 3) if n * h <= 4)
    assert configurations(narrow, 2, 4, "n") == ((1, 1, 1, 1), (2, 1, 1, 1))


def test_compute_is_the_slowest_shards() -> None:
    """8 samples over 3 devices: 3 samples of 8 in 12 ms, unless a device of half the speed has the 2 of 8."""
    profile = two_layers()
    options = configurations(profile.layers[0], 8, 3)
    split, alone = options.index((3, 1, 1, 1)), options.index((1, 1, 1, 1))
    tables = cost_tables(profile, switch(3), template(profile))
    assert tables.compute_s[0][split] == pytest.approx(3 / 8 * 0.012)
    assert tables.compute_s[0][alone] == pytest.approx(0.012)
    slow = switch(3)
    slow = replace(slow, devices=(replace(slow.devices[0], speed=0.5), *slow.devices[1:]))
    assert cost_tables(profile, slow, template(profile)).compute_s[0][split] == pytest.approx(2 / 8 * 0.012 / 0.5)


def test_transfer_and_synchronisation_have_closed_forms() -> None:
    """2 devices, 512 bytes of activations: split by sample, the reader by channel, each sends half of its half.

    Parameters of 1000 bytes: a ring of two sends 1000 bytes each way in 2 rounds.
    """
    profile = two_layers(parameter_bytes=1000)
    tables = cost_tables(profile, switch(2), template(profile))
    producer, reader = tables.configurations
    by_sample, by_channel = (2, 1, 1, 1), (1, 2, 1, 1)
    edge = tables.transfer_s[0, 1]
    assert edge[producer.index(by_sample), reader.index(by_sample)] == 0
    assert edge[producer.index(by_sample), reader.index(by_channel)] == pytest.approx(2 * (256 / 1e6 + 2e-4))
    assert edge[producer.index((1, 1, 1, 1)), reader.index(by_sample)] == pytest.approx(2 * (256 / 1e6 + 2e-4))
    assert tables.synchronise_s[1][reader.index(by_sample)] == pytest.approx(1000 / 1e6 + 2 * 2e-4)
    assert tables.synchronise_s[1][reader.index(by_channel)] == 0


def test_microbatches_multiply_transfers_but_not_synchronisation() -> None:
    profile = two_layers(parameter_bytes=1000)
    one = cost_tables(profile, switch(2), template(profile))
    four = cost_tables(profile, switch(2), template(profile, 32, microbatches=4))
    assert four.transfer_s[0, 1] == pytest.approx(4 * one.transfer_s[0, 1])
    assert four.compute_s[0] == pytest.approx(4 * one.compute_s[0])
    assert four.synchronise_s[1] == pytest.approx(one.synchronise_s[1])


@settings(max_examples=40, deadline=None)
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
    tables = cost_tables(profile, cluster, template(profile, 4))
    strategy = [source.draw(st.integers(0, len(options) - 1)) for options in tables.configurations]
    chosen = zip(profile.layers, tables.configurations, strategy, strict=True)
    placements = {layer.name: placement_of(options[i]) for layer, options, i in chosen}
    volume = communication_volume(profile, cluster, template(profile, 4, placements=placements))
    total = sum(float(table[strategy[i], strategy[j]]) for (i, j), table in tables.transfer_s.items())
    if all(len(readers) < 2 for readers in profile.consumers):
        assert total == pytest.approx(volume.forward + volume.backward)
    assert total >= (volume.forward + volume.backward) * (1 - 1e-12)


# -- closed forms of traffic


def test_servers_are_pushed_to_updated_and_pulled_from_in_turn() -> None:
    """3 workers, 1 server: its link carries 3 x 500 bytes in and out again, with the update between them."""
    cluster = switch(3, servers=1)
    steps = parameter_server(cluster, (0, 1, 2), 500, 0.002)
    assert Fabric.of(cluster, 4).collectives_s([steps]) == pytest.approx(2 * (1500e-6 + 2e-4) + 0.002)
    assert Fabric.of(cluster, 4).collectives_s([steps, steps]) == pytest.approx(2 * (3000e-6 + 2e-4) + 0.004)


def test_a_measured_curve_replaces_latency_and_bandwidth() -> None:
    """Points of 0.5 ms per message and then 2 MB/s."""
    curve = Curve(points=((1000, 0.001), (2000, 0.0015), (4000, 0.0025)))
    fabric = Fabric.of(switch(2, curve=curve), 2)
    sizes = np.array([[[0.0, 4000.0], [0.0, 0.0]], [[0.0, 2000.0], [4000.0, 0.0]]])
    assert fabric.exchange_s(sizes) == pytest.approx([2 * 0.0025, 2 * 0.0025])
    assert fabric.collectives_s([ring(switch(2), (0, 1), 4000)]) == pytest.approx(2 * 0.0015)


def test_a_measured_collective_stands_as_it_is() -> None:
    curve = Curve(points=((1000, 0.001), (2000, 0.0015)))
    cluster = replace(switch(2), collectives={"all_reduce": {2: curve}})
    assert Fabric.of(cluster, 2).collectives_s([ring(cluster, (0, 1), 2000)]) == pytest.approx(0.0015)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_chain_without_parameters_is_simulated_in_its_sum(source: st.DataObject) -> None:
    """Each layer split by sample the same way or whole: nothing overlaps, so the sum is the step."""
    seconds = source.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    names = [f"l{i}" for i in range(len(seconds))]
    layers = [linear(name, (names[i - 1],) if i else (), 4, 0, seconds[i] * 1e-4) for i, name in enumerate(names)]
    profile = Profile(model="chain", device="none", batch_size=8, layers=tuple(layers))
    cluster = switch(2)
    tables = cost_tables(profile, cluster, template(profile), "n")
    strategy = [source.draw(st.integers(0, 1)) for _ in layers]
    chosen = zip(layers, tables.configurations, strategy, strict=True)
    plan = template(profile, placements={one.name: placement_of(options[i]) for one, options, i in chosen})
    # what stays on a device runs on while the other half is on its way, so the sum is an upper bound
    assert step_seconds(profile, cluster, plan) <= tables.total_s(strategy) * (1 + 1e-9)
    if len(set(strategy)) == 1:
        assert step_seconds(profile, cluster, plan) == pytest.approx(tables.total_s(strategy))


# -- the strategy


def test_many_parameters_are_split_by_channel_and_few_by_sample() -> None:
    """Which is one weird trick, found by itself."""
    layers = (
        replace(linear("convolution", (), 64, 100, 0.010), output_shape=(1, 8, 8), geometry=Geometry(kernel=(3, 3))),
        linear("full", ("convolution",), 64, 400_000, 0.001),
    )
    profile = Profile(model="owt", device="none", batch_size=8, layers=layers)
    found = partition(profile, switch(4), batch_size=8, dimensions="nc").placements
    assert (found["convolution"].degrees, found["full"].degrees) == ((4, 1, 1, 1), (1, 4, 1, 1))


def test_slow_links_leave_devices_unused() -> None:
    """A device alone takes 18 ms; splitting would send 1 s of parameters or several latencies of 0.4 s."""
    profile = two_layers(parameter_bytes=1_000_000)
    links = tuple(replace(link, latency_s=0.2) for link in switch(4).links)
    plan = partition(profile, replace(switch(4), links=links), batch_size=8, dimensions="c")
    assert plan.devices == (0,)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_simulated_objective_is_never_slower_than_the_sum(source: st.DataObject) -> None:
    profile, cluster = source.draw(profiles(max_layers=4)), source.draw(clusters(max_workers=4))
    arguments = {"batch_size": source.draw(st.integers(cluster.workers, 8)), "effort": 0.003}
    by_sum, by_step, by_data = (
        step_seconds(profile, cluster, plan)
        for plan in (
            partition(profile, cluster, **arguments),
            partition(profile, cluster, objective="step", **arguments),
            data.partition(profile, cluster, batch_size=arguments["batch_size"]),
        )
    )
    assert by_step <= min(by_sum, by_data)


def test_effort_bounds_what_is_simulated() -> None:
    """A budget of one task pays for one plan."""
    seen: list[str] = []
    partition(two_layers(5000), switch(4), batch_size=8, objective="step", effort=1e-9, progress=seen.append)
    assert len(seen) == 1
    with pytest.raises(InputError, match="effort is 0: it is positive"):
        partition(two_layers(), switch(2), batch_size=8, effort=0)


def test_memory_is_paid_for_when_it_is_short() -> None:
    """Replicas of 3 x 3 MB do not fit into 7 MB; a split by channel does, though half the channels take as long."""
    point = ScalingPoint(batch_size=8, channel_fraction=0.5, forward_s=0.004, backward_s=0.008)
    layer = replace(linear("a", (), 16, parse_bytes("3MB"), 0.004), scaling=(point,))
    profile = Profile(model="large", device="none", batch_size=8, layers=(layer, linear("b", ("a",), 4, 0, 0.2)))
    fast = tuple(replace(link, bandwidth_bytes_per_s=1e12) for link in switch(2).links)
    roomy = replace(switch(2), links=fast)
    tight = replace(switch(2, memory_bytes=7_000_000), links=fast)
    assert partition(profile, roomy, batch_size=8, dimensions="nc").placements["a"].degrees == (2, 1, 1, 1)
    plan = partition(profile, tight, batch_size=8, dimensions="nc")
    assert plan.placements["a"].degrees == (1, 2, 1, 1)
    assert run(profile, tight, plan).report.fits


def test_memory_that_nothing_fits_gives_the_smallest_plan_and_its_verdict() -> None:
    cluster = switch(2, memory_bytes=1000)
    plan = partition(two_layers(4000), cluster, batch_size=8)
    assert run(two_layers(4000), cluster, plan).report.verdict
    assert plan.placements["b"].degrees == (1, 2, 1, 1)


def test_unknown_options_name_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'step'"):
        partition(two_layers(), switch(2), batch_size=8, objective="steps")
    with pytest.raises(InputError, match="only letters of 'nchw', not 'x'"):
        partition(two_layers(), switch(2), batch_size=8, dimensions="nx")
