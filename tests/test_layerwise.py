"""OptCNN's search against enumeration, and what the strategy does with its options."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import product
from math import prod

import laws
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, profiles
from two_layers import linear, settings_of, switch, total_s, two_layers

from partitioners._judge.judge import Judge
from partitioners._layerwise import elimination
from partitioners._layerwise.contenders import contenders
from partitioners._layerwise.elimination import least_sum
from partitioners._layerwise.optcnn import CostTables, cost_tables
from partitioners.layerwise import Search
from simulator.errors import InputError, UnknownNameError
from simulator.files import read_profile
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, StepSettings, Synchronisation
from simulator.run import run, step_seconds
from simulator.units import parse_bytes
from simulator.workload import Geometry, Profile, ScalingPoint


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


@settings(max_examples=laws.examples(20, 60), deadline=None)
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
    least, solution = least_sum(nodes, edges)
    assert least == min(every.values()) == every[tuple(solution)]
    some = contenders(nodes, edges)
    best = [choice for choice, cost in every.items() if cost == least]
    assert all(k in some[node] for choice in best for node, k in enumerate(choice))
    assert least_sum(nodes, edges, contenders=some) == (least, solution)


@settings(max_examples=laws.examples(30, 200), deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 2**32))
def test_of_a_chain_the_choices_of_least_sums_are_left_and_no_others(sizes: list[int], seed: int) -> None:
    """On a tree the bound is the least sum itself, so that nothing else stays."""
    rng = np.random.default_rng(seed)
    nodes = [rng.integers(0, 30, size).astype(float) for size in sizes]
    edges = {(i, i + 1): rng.integers(0, 30, (sizes[i], sizes[i + 1])).astype(float) for i in range(len(sizes) - 1)}
    every = {
        choice: sum(node[c] for node, c in zip(nodes, choice, strict=True))
        + sum(table[choice[i], choice[j]] for (i, j), table in edges.items())
        for choice in np.ndindex(*sizes)
    }
    best = [choice for choice, cost in every.items() if cost == min(every.values())]
    assert [each.tolist() for each in contenders(nodes, edges)] == [sorted({*part}) for part in zip(*best, strict=True)]


def test_a_bound_rules_out_nearly_all_choices_of_a_network() -> None:
    """Inception's modules hold together more than a chain does; of 55 ways to cut a layer about one is left."""
    step = StepSettings(batch_size=256)
    tables = cost_tables(read_profile("inception_v3"), read_cluster("p3-16xlarge", devices=8), step)
    nodes = [compute_s + sync_s for compute_s, sync_s in zip(tables.compute_s, tables.synchronise_s, strict=True)]
    some = contenders(nodes, tables.transfer_s)
    assert sum(map(len, some)) < 0.1 * sum(map(len, nodes))
    assert least_sum(nodes, tables.transfer_s, contenders=some) == least_sum(nodes, tables.transfer_s)


@pytest.mark.parametrize(("sizes", "held"), [((1024, 1024), 2**16), ((256, 256, 16), 2**16), ((512, 4, 512), 2**18)])
def test_a_node_is_removed_in_the_memory_of_a_block_of_sums(sizes: tuple[int, ...], held: int) -> None:
    """Of 2^20 sums 2^16 at a time, or those of one choice of a neighbour where they are more; twice that, as the next
    ones are made before the last are dropped."""
    nodes = [np.zeros(size) for size in sizes]
    edges = {(i, j): np.ones((sizes[i], sizes[j])) for j in range(len(sizes)) for i in range(j)}
    tracemalloc.start()
    try:
        assert least_sum(nodes, edges)[0] == len(edges)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 8 * 2 * held < peak_bytes < 8 * 3 * held


def test_too_entangled_a_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elimination, "MOST_ENTRIES", 8)
    edges = {(i, j): np.zeros((3, 3)) for j in range(4) for i in range(j)}
    with pytest.raises(InputError, match="27 entries, and at most 8"):
        least_sum([np.zeros(3)] * 4, edges)


@settings(max_examples=laws.examples(15, 40), deadline=None)
@given(st.data())
def test_the_plan_is_optimal_on_random_networks(source: st.DataObject) -> None:
    profile = source.draw(profiles(max_layers=5))
    cluster = source.draw(clusters(max_workers=3, max_servers=1))
    batch_size = source.draw(st.integers(1, 6))
    sync = Synchronisation(collective="ps" if cluster.servers else "ring")
    tables = cost_tables(profile, cluster, settings_of(batch_size, synchronisation=sync))
    assume(prod(map(len, tables.configurations)) < 200_000)
    plan = planned("layerwise", profile, cluster, batch_size=batch_size, synchronisation=sync)
    assert total_s(tables, strategy_of(plan, profile, tables)) == pytest.approx(enumerated(tables), rel=1e-12)


@settings(max_examples=laws.examples(15, 30), deadline=None)
@given(st.data())
def test_no_dearer_than_data_parallelism_and_one_weird_trick(source: st.DataObject) -> None:
    profile, cluster = source.draw(profiles()), source.draw(clusters(max_workers=8))
    batch_size = source.draw(st.integers(cluster.workers, 16))
    tables = cost_tables(profile, cluster, settings_of(batch_size))
    layerwise_s, *others_s = (
        total_s(tables, strategy_of(planned(name, profile, cluster, batch_size=batch_size), profile, tables))
        for name in ("layerwise", "data", "owt")
    )
    assert layerwise_s <= min(others_s) * (1 + 1e-12)


# -- the strategy


def test_many_parameters_are_split_by_channel_and_few_by_sample() -> None:
    """Which is one weird trick, found by itself."""
    layers = (
        replace(linear("convolution", (), 64, 100, 0.010), output_shape=(1, 8, 8), geometry=Geometry(kernel=(3, 3))),
        linear("full", ("convolution",), 64, 400_000, 0.001),
    )
    profile = Profile(model="owt", device="none", batch_size=8, layers=layers)
    placements = planned("layerwise", profile, switch(4), batch_size=8, dimensions="nc").placements
    assert (placements["convolution"].degrees, placements["full"].degrees) == ((4, 1, 1, 1), (1, 4, 1, 1))


def test_slow_links_leave_devices_unused() -> None:
    """A device alone takes 18 ms; splitting would send 1 s of parameters or several latencies of 0.4 s."""
    profile = two_layers(parameter_bytes=1_000_000)
    links = tuple(replace(link, latency_s=0.2) for link in switch(4).links)
    plan = planned("layerwise", profile, replace(switch(4), links=links), batch_size=8, dimensions="c")
    assert plan.devices == (0,)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_simulated_objective_is_never_slower_than_the_sum(source: st.DataObject) -> None:
    profile, cluster = source.draw(profiles(max_layers=4)), source.draw(clusters(max_workers=4))
    arguments = {"batch_size": source.draw(st.integers(cluster.workers, 8)), "effort": 0.003}
    by_sum, by_step, by_data = (
        step_seconds(profile, cluster, plan)
        for plan in (
            planned("layerwise", profile, cluster, **arguments),
            planned("layerwise", profile, cluster, objective="step", **arguments),
            planned("data", profile, cluster, batch_size=arguments["batch_size"], balance=False),
        )
    )
    assert by_step <= min(by_sum, by_data)


def test_effort_bounds_what_is_simulated() -> None:
    """A budget of one task pays for one plan."""
    seen: list[str] = []
    planned("layerwise", two_layers(5000), switch(4), batch_size=8, objective="step", effort=1e-9, progress=seen.append)
    assert len(seen) == 1
    with pytest.raises(InputError, match="effort is 0: it is above 0 and at most 1000"):
        planned("layerwise", two_layers(), switch(2), batch_size=8, effort=0)


def test_memory_is_paid_for_when_it_is_short() -> None:
    """Replicas of 3 x 3 MB do not fit into 7 MB; a split by channel does, though half the channels take as long."""
    point = ScalingPoint(batch_size=8, channel_fraction=0.5, forward_s=0.004, backward_s=0.008)
    layer = replace(linear("a", (), 16, parse_bytes("3MB"), 0.004), scaling=(point,))
    profile = Profile(model="large", device="none", batch_size=8, layers=(layer, linear("b", ("a",), 4, 0, 0.2)))
    fast = tuple(replace(link, bandwidth_bytes_per_s=1e12) for link in switch(2).links)
    roomy = replace(switch(2), links=fast)
    tight = replace(switch(2, memory_bytes=7_000_000), links=fast)
    assert planned("layerwise", profile, roomy, batch_size=8, dimensions="nc").placements["a"].degrees == (2, 1, 1, 1)
    plan = planned("layerwise", profile, tight, batch_size=8, dimensions="nc")
    assert plan.placements["a"].degrees == (1, 2, 1, 1)
    assert run(profile, tight, plan).report.fits


@pytest.mark.parametrize(("part", "is_optimal"), [(0.9, True), (0.8, True), (0.7, True), (0.6, True), (0.5, False)])
def test_under_a_memory_limit_the_plan_is_the_cheapest_that_fits(part: float, is_optimal: bool) -> None:
    """Of all 81 strategies of a chain, by their simulated peaks; tables of what is kept are no simulation, though, so
    that a dearer one that fits may be taken near the least that anything needs."""
    layers = []
    for i, (channels, parameter_bytes) in enumerate([(16, 400_000), (8, 100_000), (32, 900_000), (4, 10_000)]):
        seconds = 0.0025 + 0.0003 * i
        point = ScalingPoint(batch_size=8, channel_fraction=0.5, forward_s=seconds, backward_s=2 * seconds)
        inputs = (f"l{i - 1}",) if i else ()
        layers.append(replace(linear(f"l{i}", inputs, channels, parameter_bytes, 0.004), scaling=(point,)))
    profile = Profile(model="chain", device="none", batch_size=8, layers=tuple(layers))
    fast = tuple(replace(link, bandwidth_bytes_per_s=1e12) for link in switch(2).links)
    roomy = replace(switch(2), links=fast)
    tables, peaks = cost_tables(profile, roomy, settings_of(), "nc"), {}
    search = Search(judge=Judge(profile=profile, cluster=roomy), step=settings_of(), tables=tables)
    for strategy in product(*(range(len(options)) for options in tables.configurations)):
        peaks[strategy] = run(profile, roomy, search.plan_of(strategy)).report.peak_memory_bytes
    memory_bytes = int(part * peaks[search.cheapest()])
    tight = replace(switch(2, memory_bytes=memory_bytes), links=fast)
    plan = planned("layerwise", profile, tight, batch_size=8, dimensions="nc")
    strategy = tuple(strategy_of(plan, profile, tables))
    assert peaks[strategy] <= memory_bytes
    least_s = min(total_s(tables, each) for each, peak in peaks.items() if peak <= memory_bytes)
    assert (total_s(tables, strategy) == pytest.approx(least_s)) == is_optimal


def test_memory_that_nothing_fits_gives_the_smallest_plan_and_its_verdict() -> None:
    cluster = switch(2, memory_bytes=1000)
    plan = planned("layerwise", two_layers(4000), cluster, batch_size=8)
    assert run(two_layers(4000), cluster, plan).report.verdict
    assert plan.placements["b"].degrees == (1, 2, 1, 1)


def test_many_workers_leave_height_and_width_whole_unless_asked() -> None:
    """One sample of one channel and 34 rows can only be split by row."""
    layer = replace(linear("a", (), 1, 0, 0.34), output_shape=(1, 34, 1), geometry=Geometry())
    profile = Profile(model="rows", device="none", batch_size=1, layers=(layer,))
    assert planned("layerwise", profile, switch(17), batch_size=1).placements["a"].degrees == (1, 1, 1, 1)
    by_height = planned("layerwise", profile, switch(17), batch_size=1, dimensions="h")
    assert by_height.placements["a"].degrees == (1, 1, 17, 1)
    assert planned("layerwise", profile, switch(16), batch_size=1).placements["a"].degrees == (1, 1, 16, 1)


def test_unknown_options_name_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'step'"):
        planned("layerwise", two_layers(), switch(2), batch_size=8, objective="steps")
    with pytest.raises(InputError, match="only letters of 'nchw', not 'x'"):
        planned("layerwise", two_layers(), switch(2), batch_size=8, dimensions="nx")
