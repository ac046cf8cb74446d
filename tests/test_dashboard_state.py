"""What figures and controls show, as its definitions say it: repeats, groups of devices, batches, flows of bytes."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from small_networks import branches, chain

from dashboard.state.advice import moves
from dashboard.state.columns import _folded, by_column, columns_of, effective_split, longest_repeat
from dashboard.state.configuration import NUMBERS, Configuration, from_values
from dashboard.state.device_groups import device_groups, grid_of
from dashboard.state.flows import between_nodes_bytes, flows_of, layer_seconds
from dashboard.state.folding import stretches
from dashboard.state.measures import COMPUTE, NAMES, OVERLAPPED, shares
from dashboard.state.planning import batch_sizes, microbatch_counts, replicas
from dashboard.state.simulating import Outcome
from simulator.cluster import Cluster, Device
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.taskgraph import Kind
from simulator.workload import Profile

NOW = Configuration(profile="net", cluster="cpu-1g", strategy="data", devices=4)
SMALL = st.integers(1, 3)


@settings(max_examples=laws.examples(60, 400))
@given(st.lists(st.sampled_from("abc"), max_size=14), st.integers(1, 4))
def test_the_longest_repeat_is_that_which_shortens_the_most(marks: list[str], longest: int) -> None:
    every = [
        (first, period, times)
        for period in range(1, longest + 1)
        for first in range(len(marks))
        for times in range(2, len(marks) + 1)
        if first + period * times <= len(marks)
        and marks[first : first + period * times] == marks[first : first + period] * times
    ]
    run_of = longest_repeat(marks, longest)
    assert (run_of is None) == (not every)
    if run_of:
        saved = [(times - 1) * period for _, period, times in every]
        assert run_of in every and (run_of[2] - 1) * run_of[1] == max(saved)
        assert run_of[1] == min(period for (_, period, times) in every if (times - 1) * period == max(saved))


@settings(max_examples=laws.examples(20, 200))
@given(profiles(min_layers=3, max_layers=9), clusters(max_workers=4), st.integers(1, 6), st.data())
def test_columns_hold_every_layer_once_however_few_there_are(
    profile: Profile, cluster: Cluster, most: int, data: st.DataObject
) -> None:
    plan = data.draw(plans(profile, cluster, every_axis=True))
    columns, free = columns_of(profile, plan, most), columns_of(profile, plan, 99)
    layers = range(len(profile.layers))
    assert len(columns) <= most and (columns == free or len(free) > most)
    assert sorted(layer for column in columns for layer in column.layers) == [*layers]
    for column in columns:
        in_lanes = [layer for lane in column.lane_layers for layer in lane]
        assert sorted((*in_lanes, *column.join)) == sorted(column.layers) == sorted(column.place_of())
        for lane, own in zip(column.lanes, column.lane_layers, strict=True):
            assert {layer for glyph in lane for layer in glyph.layers} <= {*own}
            assert sum(1 + glyph.more for glyph in lane) >= 1 and all(glyph.more == 0 for glyph in lane[1:])
    values = np.arange(len(layers)) + 1.0
    assert by_column(columns, values).tolist() == [sum(layer + 1.0 for layer in each.layers) for each in columns]


@pytest.mark.parametrize("most", [1, 2, 4, 6, 9])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_repeats_are_folded_into_as_many_columns_as_there_is_room_for(most: int, stages: int) -> None:
    profile = chain([1.0] * 12)
    homes = {layer.name: Sharding(devices=(i * stages // 12,)) for i, layer in enumerate(profile.layers)}
    columns = columns_of(profile, Plan(model=profile.model, batch_size=8, placements=homes), most)
    assert sum(column.times for column in columns) <= 12 and len(columns) <= most
    assert [layer for column in columns for layer in column.layers] == [*range(12)]


def test_neighbours_in_one_column_are_one_lane_without_a_shortcut() -> None:
    """Of a network with a shortcut and with lanes that join."""
    profile = branches()
    placements = {layer.name: Sharding(devices=(0,)) for layer in profile.layers}
    plan = Plan(model=profile.model, batch_size=8, placements=placements)
    apart = columns_of(profile, plan)
    assert any(column.skips for column in apart) and any(column.join for column in apart)
    (column,) = columns_of(profile, plan, most=1)
    every = tuple(range(len(profile.layers)))
    assert (column.layers, column.lane_layers, column.join) == (every, (every,), ())
    assert (column.skips, column.open_lanes, column.times) == (False, 0, 1)


@given(st.integers(1, 3), st.integers(2, 6), st.integers(0, 3), st.integers(1, 24))
def test_groups_of_repeats_are_as_many_as_fit(period: int, repeats: int, first: int, most: int) -> None:
    """Of the sizes of a group that leave no more columns than asked for the smallest, or one group of all."""
    profile = chain([1.0] * (first + period * repeats + 2))
    placements = {layer.name: Sharding(devices=(i,)) for i, layer in enumerate(profile.layers)}
    columns = list(columns_of(profile, Plan(model=profile.model, batch_size=8, placements=placements), most=99))
    rest = len(columns) - period * repeats
    counts = [rest + period * -(-repeats // size) for size in range(1, repeats + 1)]
    folded = _folded(columns, first, period, repeats, whole=False, most=most)
    assert len(folded) == next((count for count in counts if count <= most), counts[-1])
    assert sorted(layer for column in folded for layer in column.layers) == [*range(len(profile.layers))]
    assert len(_folded(columns, first, period, repeats, whole=True, most=most)) == counts[-1]


@given(SMALL, SMALL, SMALL, st.data())
def test_a_split_has_the_shares_of_its_devices(samples: int, channels: int, copies: int, data: st.DataObject) -> None:
    """Each device has as much of the cells as of the shards, and no two rows or columns are alike."""
    count = samples * channels * copies
    devices = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    sizes = tuple(data.draw(st.lists(SMALL, min_size=samples, max_size=samples)))
    placed = [devices[i : i + copies] for i in range(0, count, copies)]
    if any(len({*each}) < copies for each in placed):
        return
    split = effective_split(
        Sharding(degrees=(samples, channels, 1, 1), copy=copies, devices=tuple(devices), samples=sizes)
    )
    held: dict[int, float] = defaultdict(float)
    expected: dict[int, float] = defaultdict(float)
    for (i, row), (j, column) in product(enumerate(split.rows), enumerate(split.columns)):
        held[split.devices[i][j]] += row * column
    for number, device in enumerate(devices):
        row = number // (channels * copies)
        expected[device] += sizes[row] / sum(sizes) / (channels * copies)
    assert {device: pytest.approx(share) for device, share in expected.items()} == dict(held)
    assert len({*split.devices}) == len(split.rows) and len({*zip(*split.devices, strict=True)}) == len(split.columns)
    assert split.device_set == {*devices}
    assert (split.words == "1 device") == (len(split.rows) * len(split.columns) == 1)


@pytest.mark.parametrize(("hosts", "each", "most"), [(2, 8, 4), (3, 8, 32), (6, 4, 4), (9, 4, 4), (32, 2, 8)])
def test_devices_are_drawn_alone_then_by_node_then_by_runs_of_nodes(hosts: int, each: int, most: int) -> None:
    names = [(f"n{i // each}/g{i % each}", f"n{i // each}") for i in range(hosts * each)]
    cluster = Cluster(name="any", devices=tuple(Device(name=name, host=host) for name, host in names))
    groups = device_groups(cluster, most=most)
    assert [device for group in groups for device in group.devices] == [*range(hosts * each)]
    if hosts * each <= 16:
        assert all(group.whole == "1 device" for group in groups)
        return
    nodes = -(-hosts // most)
    assert [len(group.devices) for group in groups[:-1]] == [nodes * each] * (len(groups) - 1)
    assert len(groups) == -(-hosts // nodes) and groups[0].name == ("n0" if nodes == 1 else f"n0–{nodes - 1}")
    opened = device_groups(cluster, 1, most=most)
    assert [device for group in opened for device in group.devices] == [*groups[1].devices]
    assert device_groups(cluster, len(groups), most=most) == device_groups(cluster, -1, most=most) == groups


@given(SMALL, SMALL, SMALL)
def test_a_grid_is_read_off_its_plan(pipeline: int, data: int, tensor: int) -> None:
    profile, size = chain([1.0] * 6), data * tensor
    placements = {
        layer.name: Sharding(degrees=(data, tensor, 1, 1), devices=tuple(range(stage * size, (stage + 1) * size)))
        for i, layer in enumerate(profile.layers)
        for stage in [i * pipeline // 6]
    }
    grid = grid_of(profile, Plan(model=profile.model, batch_size=8, placements=placements))
    assert grid is not None and grid.devices.shape == (pipeline, data, tensor)
    assert grid.devices.reshape(-1).tolist() == [*range(pipeline * size)]
    assert grid.layers == tuple(tuple(i for i in range(6) if i * pipeline // 6 == stage) for stage in range(pipeline))
    assert [grid.stage_of(device) for device in range(pipeline * size)] == [d // size for d in range(pipeline * size)]
    assert [group.devices for group in grid.stages] == [
        tuple(range(stage * size, (stage + 1) * size)) for stage in range(pipeline)
    ]


@given(st.integers(1, 64), st.integers(1, 12), st.sampled_from(("data", "model", "megatron")), SMALL, SMALL, SMALL)
def test_batches_and_micro_batches_that_are_offered_leave_every_replica_samples(
    batch: int, devices: int, strategy: str, tensor: int, pipeline: int, count: int
) -> None:
    now = Configuration(
        profile="net", cluster="any", strategy=strategy, devices=devices, batch_size=batch,
        tensor=tensor, pipeline=pipeline, microbatches=count,
    )  # fmt: skip
    profile, size = branches(), tensor * pipeline if strategy == "megatron" else 1
    of_samples = 1 if strategy == "model" else devices // size if devices % size == 0 else 0
    assert replicas(now) == of_samples
    each, usual = max(of_samples, 1), profile.batch_for(devices)
    assert microbatch_counts(now, profile) == [n for n in range(1, batch + 1) if batch % n == 0 and batch >= n * each]
    offered = batch_sizes(now, profile)
    assert offered == sorted({*offered}) and all(size % (each * count) == 0 for size in offered)
    nearest = {max(1, -(-(usual * k // 4) // (each * count))) * each * count for k in (1, 2, 4, 8, 16)}
    assert {*offered} == nearest


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_out_of_range_become_the_nearest_in_it(name: str) -> None:
    taken = NUMBERS[name]
    for value, kept in (
        (taken.low, taken.low), (taken.high, taken.high), (taken.low - 1, taken.low), (taken.high + 1, taken.high),
    ):  # fmt: skip
        now, notes = from_values({name: value}, NOW)
        assert getattr(now, name) == kept and len(notes) == (value != kept)
    assert from_values({name: ""}, NOW)[0] == NOW


@settings(max_examples=laws.examples(25, 200))
@given(profiles(min_layers=2), clusters(min_workers=2, max_servers=1), st.data())
def test_flows_and_shares_are_those_of_the_tasks(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    plan = data.draw(plans(profile, cluster, every_collective=True))
    done = run(profile, cluster, plan)
    graph, timeline, layers = done.graph, done.timeline, len(profile.layers)
    flows, hosts = flows_of(done, profile, cluster), [device.host for device in cluster.devices]
    (seconds, received), between = np.zeros((2, layers, len(hosts))), 0.0
    sent: dict[int, float] = defaultdict(float)
    targets: dict[tuple[int, int], set[int]] = defaultdict(set)
    for task in range(len(graph)):
        layer, device, kind = int(graph.layer[task]), int(graph.device[task]), Kind(graph.kind[task])
        if not graph.is_transfer[task]:
            seconds[layer, device] += float(graph.seconds[task]) if layer >= 0 else 0.0
            continue
        pairs, size = graph.routes[graph.route[task]].pairs, float(graph.bytes[task])
        between += size * sum(hosts[a] != hosts[b] for a, b in pairs)
        if kind in (Kind.ACTIVATION, Kind.GRADIENT):
            sent[layer] += size * len(pairs)
            if device >= 0:
                received[layer, device] += size
            if kind == Kind.ACTIVATION and graph.microbatch[task] <= 0:
                targets[layer, int(graph.shard[task])].add(device)
    workers = cluster.workers
    assert flows.seconds.tolist() == layer_seconds(done, cluster).tolist()
    np.testing.assert_allclose(layer_seconds(done, cluster), seconds[:, :workers], atol=1e-12)
    np.testing.assert_allclose(flows.received_bytes, received[:, :workers], atol=1e-6)
    by_layer = flows.activation_bytes.sum(axis=1).tolist()
    assert by_layer == pytest.approx([sent[layer] for layer in range(layers)], abs=1e-6)
    assert flows.total_bytes == pytest.approx(done.report.communication_bytes.total, abs=1e-6)
    assert between_nodes_bytes(done, cluster) == pytest.approx(between, abs=1e-6)
    assert flows.between_bytes == pytest.approx(between, abs=1e-6)
    for a, b in zip(flows.producer.tolist(), flows.reader.tolist(), strict=True):
        assert b in profile.consumers[a]
    crossing = [[len(to) for (layer, _), to in targets.items() if layer == i] for i in range(layers)]
    assert flows.crossing_shards.tolist() == [len(each) for each in crossing]
    assert flows.crossing_targets.tolist() == [max(each, default=0) for each in crossing]
    split = shares(done, cluster)
    for device, parts in enumerate(split.devices):
        assert sum(part.seconds for part in parts) == pytest.approx(timeline.step_s, abs=1e-9)
        computed = sum(part.seconds for part in parts if part.name in (COMPUTE, OVERLAPPED))
        assert computed == pytest.approx(done.report.devices[device].compute_s, abs=1e-9)
        assert tuple(part.name for part in parts) == NAMES
        assert all(part.lost == (part.name not in (COMPUTE, OVERLAPPED)) for part in parts)
    assert sum(part.ratio for part in split.total) == pytest.approx(1.0 if timeline.step_s else 0.0)


def test_moves_are_single_changes_to_what_is_allowed() -> None:
    """Micro-batches doubled or halved, another schedule or strategy, overlap, a ring, links twice as fast."""
    cluster, profile = read_cluster("cpu-1g", devices=4), branches()
    now = Configuration(
        profile="net", cluster="cpu-1g", strategy="pipeline", devices=4, microbatches=4, overlap=False, collective="ps",
        inter_bandwidth=2.0, schedule="gpipe",
    )  # fmt: skip
    outcome = Outcome(configuration=now, profile=profile, cluster=cluster, took_s=0.0)
    changes = [
        {field: getattr(move.configuration, field) for field in Configuration.__dataclass_fields__
         if getattr(move.configuration, field) != getattr(now, field)}
        for move in moves(outcome)
    ]  # fmt: skip
    assert {"microbatches": 8} in changes and {"microbatches": 2} in changes and {"microbatches": 0} not in changes
    assert {"overlap": True} in changes and {"collective": "ring"} in changes and {"inter_bandwidth": 4.0} in changes
    assert {"schedule": "1f1b"} in changes and {"schedule": "gpipe"} not in changes and {} not in changes
    assert {"strategy": "data"} in changes and {"strategy": "data", "microbatches": None, "schedule": "own"} in changes
    assert [move.hardware for move in moves(outcome)].count(True) == len(cluster.tiers)


def test_a_network_folds_into_lanes_where_it_branches_and_joins() -> None:
    """A residual block has one lane and skips it, two branches are lanes, and an output that nobody joins is open."""
    plain, block, mixed, *rest = stretches(branches())
    assert (plain.lanes, plain.join, plain.skips) == ((((0,),),), (), False)
    assert (block.lanes, block.join, block.skips) == ((((1,),),), (2,), True)
    assert (mixed.lanes, mixed.join, mixed.skips) == ((((3,),), ((4,),)), (5, 6), False)
    assert [stretch.lanes for stretch in rest] == [(((7, 8),),), (((9,),),)]
    assert not any(stretch.join or stretch.skips or stretch.open_lanes for stretch in rest)
    assert [stretch.title for stretch in (plain, block, mixed, *rest)] == ["conv1", "res1", "mix1", "fc1", "fc2"]
