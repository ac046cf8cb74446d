"""Collectives by mechanism: laws on every preset and on random clusters, placements, contention, what-ifs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster import Cluster
from simulator.collective_library import CollectiveLibrary
from simulator.collectives import exchange
from simulator.curve import Curve
from simulator.engine import simulate
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.catalogue import presets, read_cluster, read_preset
from simulator.network.collective_times import HALVES, collective_s, placement
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.taskgraph import Kind, Route

WITH_LIBRARY = tuple(name for name in presets() if read_preset(name).library is not None)
NAMES = st.sampled_from((*HALVES, "all-to-all", "broadcast"))
SIZES = st.floats(min_value=1.0, max_value=1e11)
SLACK = 1 + 1e-9


def wires(tier: str, least: float, most: float) -> st.SearchStrategy[Wire]:
    return st.builds(
        Wire,
        bandwidth_bytes_per_s=st.floats(least, most),
        latency_s=st.floats(0.0, 1e-4),
        tier=st.just(tier),
        wires=st.sampled_from((1, 2, 4, 8)) if tier == "inter" else st.just(1),
    )


LIBRARIES = st.builds(
    CollectiveLibrary,
    launch_s=st.floats(0.0, 1e-4),
    fill_s=st.floats(0.0, 1e-4),
    step_ratio=st.floats(1.0, 5.0),
    short_share=st.floats(0.05, 1.0),
    short_between=st.floats(0.05, 1.0),
    copy_bytes_per_s=st.floats(1e12, 1e13),
    switch_share=st.none() | st.floats(0.3, 1.0),
    switch_fill_s=st.floats(0.0, 1e-4),
    two_hosts_once=st.booleans(),
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Four hosts of a random machine, or of a preset."""
    if draw(st.booleans()):
        name = draw(st.sampled_from(WITH_LIBRARY))
        return read_cluster(name, devices=4 * read_preset(name).node.devices)
    per_host = draw(st.sampled_from((1, 2, 4, 8)))
    inside, between = draw(wires("intra", 1e9, 5e11)), draw(wires("inter", 1e8, 5e11))
    return replace(two_tier(4 * per_host, per_host, inside, between), library=draw(LIBRARIES))


def on_hosts(cluster: Cluster, hosts: int, each: int | None = None) -> tuple[int, ...]:
    """The first devices, so many of each host (None: all)."""
    per_host = cluster.devices_per_host
    return tuple(host * per_host + k for host in range(hosts) for k in range(each or per_host))


@settings(deadline=None)
@given(cluster=clusters(), name=NAMES, size=SIZES, more=st.floats(1.0, 10.0), hosts=st.integers(1, 4), data=st.data())
def test_a_larger_collective_takes_longer_but_no_more_than_in_proportion(
    cluster: Cluster, name: str, size: float, more: float, hosts: int, data: st.DataObject
) -> None:
    each = data.draw(st.integers(1, cluster.devices_per_host))
    group = on_hosts(cluster, hosts, each)
    if len(group) > 1:
        small, large = (collective_s(cluster, name, group, size * factor) for factor in (1.0, more))
        assert small <= large * SLACK and large <= more * small * SLACK


@settings(deadline=None)
@given(cluster=clusters(), name=st.sampled_from([*HALVES, "broadcast"]), size=SIZES, data=st.data())
def test_more_hosts_take_longer(cluster: Cluster, name: str, size: float, data: st.DataObject) -> None:
    each = data.draw(st.integers(1, cluster.devices_per_host))
    seconds = [collective_s(cluster, name, on_hosts(cluster, hosts, each), size) for hosts in (1, 2, 3, 4)]
    assert all(few <= many * SLACK for few, many in itertools.pairwise(seconds))


@settings(deadline=None)
@given(cluster=clusters(), name=NAMES, size=SIZES, factor=st.floats(1.0, 100.0), data=st.data())
def test_faster_links_never_make_it_slower(
    cluster: Cluster, name: str, size: float, factor: float, data: st.DataObject
) -> None:
    group, tier = on_hosts(cluster, data.draw(st.integers(2, 4))), data.draw(st.sampled_from(cluster.tiers))
    before_s = collective_s(cluster, name, group, size)
    wider = cluster.with_links(tier, lambda link: link.times(factor))
    quicker = cluster.with_links(tier, lambda link: link.with_latency(link.latency_s / factor))
    for changed in (wider, quicker):
        assert before_s / factor / SLACK <= collective_s(changed, name, group, size) <= before_s * SLACK


def alone_s(cluster: Cluster, name: str, groups: list[tuple[int, ...]], size: float) -> float:
    """Simulated seconds of collectives that start together."""
    builder = GraphBuilder()
    for group in groups:
        route, sent_bytes = exchange(name, group, size)
        builder.add(Kind.SYNCHRONISATION, 1, route=builder.route(route), bytes=sent_bytes)
    return simulate(builder.build([0.0] * len(cluster.devices), ()), cluster).step_s


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", [*HALVES, "all-to-all", "broadcast"])
@pytest.mark.parametrize("preset", WITH_LIBRARY)
def test_a_collective_alone_takes_what_its_library_says(preset: str, name: str) -> None:
    cluster = read_cluster(preset, devices=2 * read_preset(preset).node.devices)
    for group in (on_hosts(cluster, 1), on_hosts(cluster, 2), on_hosts(cluster, 2, 1)):
        for size in (1e3, 1e6, 1e9):
            assert alone_s(cluster, name, [group], size) == pytest.approx(collective_s(cluster, name, group, size))


def test_groups_of_one_device_per_host_have_a_card_each_and_do_not_slow_each_other() -> None:
    """As the replicas of tensor groups: eight cards, eight rings."""
    cluster = read_cluster("dgx-h100", devices=32)
    groups = [tuple(range(rank, 32, 8)) for rank in range(8)]
    single_s = alone_s(cluster, "all-reduce", groups[:1], 1e9)
    assert single_s == pytest.approx(1.5e9 / (0.94 * 50e9), rel=0.02)
    assert alone_s(cluster, "all-reduce", groups, 1e9) == pytest.approx(single_s)
    assert alone_s(cluster, "all-reduce", [on_hosts(cluster, 4)], 1e9) < single_s / 4


def test_a_message_has_one_card_and_eight_have_eight() -> None:
    cluster = read_cluster("dgx-h100", devices=16)
    for pairs in ([(0, 8)], [(i, 8 + i) for i in range(8)]):
        builder = GraphBuilder()
        for pair in pairs:
            builder.add(Kind.ACTIVATION, 1, device=pair[1], route=builder.route(Route((pair,))), bytes=1e9)
        step_s = simulate(builder.build([0.0] * 16, ()), cluster).step_s
        assert step_s == pytest.approx(1e9 / (0.94 * 50e9), rel=1e-3)
    assert cluster.transfer_s(0, 8, 1e9) == pytest.approx(step_s, rel=1e-3)


CURVE = Curve(points=((1e3, 1e-3), (1e6, 1.1e-2), (1e7, 1.01e-1), (1e8, 1.001)))


def measured(bandwidth: float = 1e8) -> Cluster:
    """Four hosts whose all-reduces were measured: 1 ms, and 10 ns a byte."""
    cluster = flat_switch(4, Wire(bandwidth_bytes_per_s=bandwidth, latency_s=5e-5, tier="inter"))
    return replace(cluster, collectives={"all_reduce": {4: CURVE, 2: CURVE}})


def test_what_was_measured_is_what_is_predicted_there() -> None:
    for devices in (2, 4):
        for size, seconds in CURVE.points:
            assert collective_s(measured(), "all-reduce", tuple(range(devices)), size) == pytest.approx(seconds)
    three = collective_s(measured(), "all-reduce", (0, 1, 2), 1e8)
    assert 0.8 < three < 1.3, "between its neighbours, by how far the formula misses those"


def test_measured_collectives_follow_another_bandwidth_and_latency() -> None:
    """All above the shortest time scales; that moves with the latency of its rounds, 2 x 3 of two links."""
    group = (0, 1, 2, 3)
    seconds = [
        collective_s(measured().with_tier("inter", bandwidth_bytes_per_s=rate), "all-reduce", group, 1e8)
        for rate in (1e8, 2e8, 1e9)
    ]
    assert seconds == [pytest.approx(1e-3 + 1.0 / share) for share in (1, 2, 10)]
    slow = measured().with_tier("inter", latency_s=1e-3)
    assert collective_s(slow, "all-reduce", group, 1e3) == pytest.approx(1e-3 + 6 * 2 * 0.95e-3)


@given(
    steps=st.lists(st.floats(0.81, 3.0), min_size=1, max_size=12),
    slower=st.floats(1e-3, 1e3),
    added_s=st.floats(-1e-4, 1e-2),
)
def test_what_if_takes_curves_that_vary(steps: list[float], slower: float, added_s: float) -> None:
    """A curve whose times fall by less than they vary stays one, however its links change: it was refused as measured
    wrongly. Above the time of what follows each keeps its share."""
    seconds = itertools.accumulate(steps, lambda before, step: before * step, initial=1e-5)
    curve = Curve(points=tuple((2.0**number, each) for number, each in enumerate(seconds)))
    curve.require_rising("measured")
    changed = curve.rescaled(slower, added_s)
    changed.require_rising("changed")
    assert changed.points[-1][1] >= min(each for _, each in changed.points)
    assert curve.rescaled(1.0, 0.0).points == tuple((size, pytest.approx(each)) for size, each in curve.points)


@pytest.mark.parametrize("hosts", [2, 4])
def test_rounds_of_a_ring_between_hosts_wait_for_their_slots(hosts: int) -> None:
    """Two of the n - 1 are on their way while one's bytes and a step go there and a step comes back."""
    cluster = read_cluster("p5", devices=8 * hosts)
    library, group = replace(cluster.library, short_between=1e-3), on_hosts(cluster, hosts)
    cluster = replace(cluster, library=library)  # the protocol of long messages
    step_s = library.step_ratio * (2 * 13.1e-6 + 2 * 0.34e-6)
    ends_s = library.launch_s + library.fill_s + (len(group) - hosts) * 2 * 0.34e-6
    rate = min(0.725 * 450e9, 8 * 0.585 * 50e9)
    for size, waits in ((1e6, True), (2e8, True), (1e10, False)):
        moves_s = (len(group) - 1) / len(group) * size / rate + size / len(group) / library.copy_bytes_per_s
        slots_s = ((len(group) - 1) * 2 * step_s + moves_s) / 2
        bytes_s = (hosts - 1) * step_s + moves_s
        assert (slots_s > bytes_s) == waits
        expected_s = ends_s + max(slots_s, bytes_s)
        assert collective_s(cluster, "all-gather", group, size) == pytest.approx(expected_s, rel=1e-6)


@pytest.mark.parametrize("preset", ["dgx-h100", "dgx-a100", "p5", "p4de", "gb200-nvl72", "gb300-nvl72", "dgx-b300"])
def test_there_is_no_cliff_from_one_size_of_cluster_to_the_next(preset: str) -> None:
    """Twice the hosts have at most three times the steps between them, and take no less than as long."""
    per_host = read_preset(preset).node.devices
    cluster = read_cluster(preset, devices=64 * per_host)
    for name in ("all-reduce", "all-gather"):
        for size in (2**10, 2**20, 2**23, 2**25, 2**30):
            seconds = [collective_s(cluster, name, on_hosts(cluster, hosts), size) for hosts in (2, 4, 8, 16, 32, 64)]
            assert all(few <= many * SLACK <= 3 * few for few, many in itertools.pairwise(seconds)), (
                name,
                size,
                seconds,
            )


def test_each_host_of_an_all_to_all_has_as_many_cards_as_members() -> None:
    """One device on a fourth host sends as much by its card as each of the others by theirs."""
    cluster = read_cluster("dgx-h100", devices=32)
    size = 1e13
    whole, one_more = (collective_s(cluster, "all-to-all", tuple(range(n)), n**2 * size) for n in (32, 25))
    sent_s, copied_s = 24 * size / (0.94 * 50e9), size / 1.13e12
    assert one_more == pytest.approx(sent_s + copied_s) == pytest.approx(whole)


def test_two_devices_of_a_mesh_have_one_wire_wherever_others_are() -> None:
    cluster = read_cluster("mi300x", devices=16)
    inside = placement(cluster, (*range(8), 8, 9)).inside_bytes_per_s
    assert inside == placement(cluster, (8, 9)).inside_bytes_per_s == pytest.approx(0.6 * 64e9)
