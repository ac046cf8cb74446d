"""The design's invariants, held by random networks on random clusters under random plans."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from counted_volume import communication_volume
from hypothesis import given
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles

from simulator.cluster import Cluster
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.transfers import link_bytes, link_weights, uncontended_s
from simulator.plan import Plan, Sharding
from simulator.report.critical_path import binding_chain, critical_path_s
from simulator.report.memory import peak_bytes, usage
from simulator.report.traffic import Communication
from simulator.run import Run, run
from simulator.taskgraph import Kind
from simulator.workload import Layer, Profile

CLOSE = 1e-9


@st.composite
def cases(draw: st.DrawFn, symmetric: bool = False) -> tuple[Profile, Cluster, Plan]:
    profile = draw(profiles())
    cluster = draw(clusters(max_servers=2, symmetric=symmetric))
    # who is where in a tree or which device leads its host is no symmetry
    return profile, cluster, draw(plans(profile, cluster, every_collective=not symmetric))


Law = Callable[[Run, Profile, Cluster], None]
LAWS: list[Law] = []
"""What holds for every run. All are asked of the same random runs: drawing them takes longer than the laws do."""


def law(holds: Law) -> Law:
    LAWS.append(holds)
    return holds


@given(cases())
def test_every_law_holds_for_any_run(case: tuple[Profile, Cluster, Plan]) -> None:
    profile, cluster, plan = case
    done = run(profile, cluster, plan)
    for holds in LAWS:
        holds(done, profile, cluster)


@law
def no_task_starts_before_its_dependencies_end(done: Run, profile: Profile, cluster: Cluster) -> None:
    for task in range(len(done.graph)):
        for other in done.graph.predecessors(task):
            assert done.timeline.end_s[other] <= done.timeline.start_s[task]


@law
def a_device_runs_one_task_at_a_time(done: Run, profile: Profile, cluster: Cluster) -> None:
    graph, timeline = done.graph, done.timeline
    for device in set(graph.device[~graph.is_transfer].tolist()):
        tasks = np.flatnonzero(~graph.is_transfer & (graph.device == device))
        order = tasks[np.lexsort((timeline.end_s[tasks], timeline.start_s[tasks]))]
        assert (timeline.end_s[order[:-1]] <= timeline.start_s[order[1:]]).all()
        assert timeline.end_s[tasks] - timeline.start_s[tasks] == pytest.approx(graph.seconds[tasks], abs=1e-15)


@law
def every_shard_has_its_passes_on_its_device(done: Run, profile: Profile, cluster: Cluster) -> None:
    """A forward and a backward pass of each micro-batch, forward with the seconds of its samples."""
    graph, plan, seen = done.graph, done.plan, Counter[tuple[int, int, int, int]]()
    for task in np.flatnonzero(np.isin(graph.kind, (Kind.FORWARD, Kind.BACKWARD))).tolist():
        layer, shard, kind = profile.layers[graph.layer[task]], int(graph.shard[task]), int(graph.kind[task])
        sharding = plan.placements[layer.name]
        assert graph.device[task] == sharding.devices[shard]
        seen[int(graph.layer[task]), shard, int(graph.microbatch[task]), kind] += 1
        samples, others = divmod(plan.microbatch_size, sharding.degrees[0])
        if kind == Kind.FORWARD and not others and sharding.shape == (sharding.degrees[0], 1, 1, 1, 1, 1):
            forward_s, _ = shard_seconds(profile, layer, samples)
            assert graph.seconds[task] == pytest.approx(forward_s / cluster.speeds[graph.device[task]])
    assert seen == Counter(
        (i, shard, microbatch, kind)
        for i, layer in enumerate(profile.layers)
        for shard in range(len(plan.placements[layer.name].devices))
        for microbatch in range(plan.microbatches)
        for kind in (int(Kind.FORWARD), int(Kind.BACKWARD))
    )


@law
def a_backward_pass_waits_for_those_of_its_readers(done: Run, profile: Profile, cluster: Cluster) -> None:
    """And a forward pass for those that it reads, where one shard each makes and reads the whole of an output: on
    whatever devices, as the plan says, whatever the graph's edges are."""
    graph, timeline, index = done.graph, done.timeline, profile.index
    whole = {index[name] for name, sharding in done.plan.placements.items() if len(sharding.devices) == 1}
    tasks = {
        (graph.layer[task], graph.microbatch[task], graph.kind[task]): task
        for task in np.flatnonzero(np.isin(graph.kind, (Kind.FORWARD, Kind.BACKWARD))).tolist()
    }
    edges = {(index[name], index[layer.name]) for layer in profile.layers for name in layer.inputs}
    for made, reader in {(made, reader) for made, reader in edges if {made, reader} <= whole}:
        for microbatch in range(done.plan.microbatches):
            for kind, first, then in ((Kind.FORWARD, made, reader), (Kind.BACKWARD, reader, made)):
                ends_s = timeline.end_s[tasks[first, microbatch, kind]]
                assert ends_s <= timeline.start_s[tasks[then, microbatch, kind]]


@law
def gradients_are_summed_after_the_backward_passes_of_all_micro_batches(
    done: Run, profile: Profile, cluster: Cluster
) -> None:
    """Of a layer that is summed alone, as buckets hold no other, on devices that all have all its parameters."""
    if done.plan.synchronisation.bucket_bytes:
        return
    graph, end_s = done.graph, done.timeline.end_s
    kinds = (Kind.BACKWARD, Kind.SYNCHRONISATION)
    alike = [profile.index[name] for name, sharding in done.plan.placements.items() if sharding.degrees[1] == 1]
    for layer in alike:
        backward, summed = (end_s[(graph.layer == layer) & (graph.kind == kind)] for kind in kinds)
        assert not len(summed) or backward.max() <= summed.max()


@law
def bytes_on_links_are_the_plans_volume(done: Run, profile: Profile, cluster: Cluster) -> None:
    volume = communication_volume(ShardedModel(profile, done.plan), cluster)
    report = done.report.communication_bytes
    for phase in ("total", "forward", "backward", "synchronisation"):
        assert getattr(report, phase) == pytest.approx(getattr(volume, phase), rel=CLOSE)
    assert np.array(report.matrix) == pytest.approx(np.array(volume.matrix), rel=CLOSE)
    hops = [len(cluster.route(i, j)) * size for i, row in enumerate(volume.matrix) for j, size in enumerate(row)]
    assert link_bytes(done.graph, cluster).sum() == pytest.approx(sum(hops), rel=CLOSE)


@law
def the_most_memory_of_all_devices_at_once_is_that_of_each_alone(done: Run, profile: Profile, cluster: Cluster) -> None:
    devices = len(cluster.devices)
    alone = [usage(done.graph, done.timeline, cluster, device)[1].max() for device in range(devices)]
    assert peak_bytes(done.graph, done.timeline, cluster).tolist() == alone


@law
def sent_and_received_bytes_are_the_sums_of_the_matrix(done: Run, profile: Profile, cluster: Cluster) -> None:
    report = done.report
    matrix = np.array(report.communication_bytes.matrix)
    assert [device.sent_bytes for device in report.devices] == pytest.approx(matrix.sum(axis=1))
    assert [device.received_bytes for device in report.devices] == pytest.approx(matrix.sum(axis=0))


@law
def step_lies_between_the_critical_path_and_the_serial_sum(done: Run, profile: Profile, cluster: Cluster) -> None:
    step_s = done.timeline.step_s
    assert critical_path_s(done.graph, cluster) <= step_s * (1 + CLOSE)
    assert step_s <= sum(uncontended_s(done.graph, cluster)) * (1 + CLOSE)


@law
def twice_as_slow_takes_exactly_twice_as_long(done: Run, profile: Profile, cluster: Cluster) -> None:

    def slower(layer: Layer) -> Layer:
        points = tuple(replace(p, forward_s=2 * p.forward_s, backward_s=2 * p.backward_s) for p in layer.scaling)
        return replace(
            layer,
            forward_s=2 * layer.forward_s,
            backward_s=2 * layer.backward_s,
            update_s=2 * layer.update_s,
            scaling=points,
        )

    links = tuple(
        replace(link, latency_s=2 * link.latency_s, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / 2)
        for link in cluster.links
    )
    slow_profile = replace(profile, layers=tuple(map(slower, profile.layers)))
    before = done.timeline
    after = run(slow_profile, replace(cluster, links=links), done.plan).timeline
    assert after.start_s.tolist() == pytest.approx((2 * before.start_s).tolist(), rel=CLOSE)
    assert after.end_s.tolist() == pytest.approx((2 * before.end_s).tolist(), rel=CLOSE)


@given(cases(symmetric=True), st.randoms(use_true_random=False))
def test_renaming_devices_changes_nothing(case: tuple[Profile, Cluster, Plan], random: object) -> None:
    profile, cluster, plan = case
    names = list(range(cluster.workers))
    random.shuffle(names)  # type: ignore[attr-defined]
    renamed = {
        name: Sharding(degrees=sharding.degrees, devices=tuple(names[d] for d in sharding.devices))
        for name, sharding in plan.placements.items()
    }
    before = run(profile, cluster, plan)
    after = run(profile, cluster, replace(plan, placements=renamed))
    assert after.timeline.step_s == pytest.approx(before.timeline.step_s, rel=CLOSE)
    assert after.report.load_balance_ratio == pytest.approx(before.report.load_balance_ratio, rel=CLOSE)
    for old, new in enumerate(names):
        a, b = before.report.devices[old], after.report.devices[new]
        assert b.compute_s == pytest.approx(a.compute_s, rel=CLOSE)
        assert b.peak_memory_bytes == pytest.approx(a.peak_memory_bytes, rel=1e-6)


@law
def every_sample_and_channel_is_computed_once(done: Run, profile: Profile, cluster: Cluster) -> None:
    plan = done.plan
    model = ShardedModel(profile, plan)
    graph = lower(model, cluster)
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        for position, layer in enumerate(profile.layers):
            tasks = np.flatnonzero((graph.kind == kind) & (graph.layer == position))
            owners = set(zip(graph.microbatch[tasks].tolist(), graph.shard[tasks].tolist(), strict=True))
            sharding = plan.placements[layer.name]
            assert len(tasks) == len(owners) == plan.microbatches * len(sharding.devices)
            elements = model.shard_elements(position).sum() * plan.microbatches
            channels, height, width = layer.output_shape
            assert elements == plan.batch_size * channels * height * width


@law
def same_inputs_give_the_same_bytes(done: Run, profile: Profile, cluster: Cluster) -> None:
    again = run(profile, cluster, done.plan)
    assert again.timeline.start_s.tobytes() == done.timeline.start_s.tobytes()
    assert again.timeline.end_s.tobytes() == done.timeline.end_s.tobytes()
    assert again.report == done.report


@law
def a_devices_times_add_up_to_the_step(done: Run, profile: Profile, cluster: Cluster) -> None:
    for device in done.report.devices:
        parts = device.compute_s + device.exposed_communication_s + device.bubble_s + device.idle_s
        assert parts == pytest.approx(done.report.step_s, rel=CLOSE, abs=1e-15)
        assert min(device.compute_s, device.exposed_communication_s, device.bubble_s, device.idle_s) >= -1e-12


@law
def memory_is_given_back(done: Run, profile: Profile, cluster: Cluster) -> None:
    graph = done.graph
    for device in range(len(graph.static_bytes)):
        on_device = graph.device == device
        allocated, freed = graph.allocated_bytes[on_device].sum(), graph.freed_bytes[on_device].sum()
        assert allocated == pytest.approx(freed, rel=CLOSE, abs=1e-6)


@law
def the_binding_chain_lasts_the_whole_step(done: Run, profile: Profile, cluster: Cluster) -> None:
    chain, timeline = binding_chain(done.graph, done.timeline), done.timeline
    assert timeline.start_s[chain[0]] == 0
    assert timeline.end_s[chain[-1]] == timeline.step_s
    for before, after in itertools.pairwise(chain):
        assert timeline.end_s[before] == timeline.start_s[after]


@law
def no_link_carries_more_than_its_bandwidth(done: Run, profile: Profile, cluster: Cluster) -> None:
    for link in done.report.links:
        assert link.utilisation <= 1 + CLOSE
    for task in np.flatnonzero(done.graph.is_transfer):
        spent = done.timeline.end_s[task] - done.timeline.start_s[task]
        weights = link_weights(done.graph.routes[done.graph.route[task]], cluster)
        for link, weight in weights.items():
            bandwidth = cluster.links[link].bandwidth_bytes_per_s
            assert done.graph.bytes[task] * weight <= bandwidth * spent * (1 + CLOSE) + 1e-9


def test_a_large_cluster_is_told_by_pairs() -> None:
    """The matrix of 2,000 devices stays unmade until somebody asks for it."""
    ends = {"source": np.array([0, 1999]), "target": np.array([1999, 0]), "size_bytes": np.array([3.0, 4.0])}
    sent = Communication(total=7.0, forward=3.0, backward=4.0, synchronisation=0.0, devices=2000, **ends)
    figures = sent.to_dict()
    assert figures["pairs"] == ((0, 1999, 3.0), (1999, 0, 4.0)) and "matrix" not in figures
    assert sent.matrix[1999][0] == 4.0 and len(sent.matrix) == 2000
