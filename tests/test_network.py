"""Link sharing against SimGrid's finish times and against hand-drawn cases."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.cluster import Cluster, Device, Link
from simulator.collectives import exchange
from simulator.curve import Curve
from simulator.engine import simulate
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.network.transfers import link_bytes, link_work, paths
from simulator.taskgraph import Kind, Route

pytestmark = pytest.mark.usefixtures("engine")


def run_flows(cluster: Cluster, flows: list[tuple[int, int, float, float]]) -> list[float]:
    """Finish times of flows (source, target, start_s, bytes) on `cluster`.

    Each flow is released by a compute task on a device of its own, appended to the cluster.
    """
    hosts = len(cluster.devices)
    clocks = tuple(Device(name=f"clock{i}", host="clock") for i in range(len(flows)))
    extended = Cluster(
        name=cluster.name,
        devices=cluster.devices + clocks,
        links=cluster.links,
    )
    builder = GraphBuilder()
    messages = []
    for i, (source, target, start_s, size) in enumerate(flows):
        clock = builder.add(Kind.FORWARD, 1, device=hosts + i, seconds=start_s)
        route = builder.route(Route(((source, target),)))
        message = builder.add(Kind.ACTIVATION, 1, device=target, route=route, bytes=size)
        builder.depend(message, clock)
        messages.append(int(message[0]))
    timeline = simulate(builder.build(np.zeros(len(extended.devices)), ()), extended)
    return [float(timeline.end_s[i]) for i in messages]


def simgrid_cluster(case: dict[str, Any]) -> tuple[Cluster, dict[str, int]]:
    """The case's links as a Cluster: `x.up` leads from x to its switch, `x.down` back."""
    hosts = sorted({route["src"] for route in case["routes"]} | {route["dst"] for route in case["routes"]})

    def ends(name: str) -> tuple[str, str]:
        node, direction = name.rsplit(".", 1)
        parent = f"s{node[1:].split('.')[0]}" if node.startswith("h") else "core"
        return (node, parent) if direction == "up" else (parent, node)

    links = tuple(
        Link(source=ends(name)[0], target=ends(name)[1], bandwidth_bytes_per_s=rate, latency_s=latency)
        for name, (rate, latency) in case["links"].items()
    )
    devices = tuple(Device(name=host, host=host) for host in hosts)
    return Cluster(name="simgrid", devices=devices, links=links), {host: i for i, host in enumerate(hosts)}


@pytest.mark.parametrize("number", range(1, 7))
def test_agrees_with_simgrid(shared_data: Path, number: int) -> None:
    case = json.loads((shared_data / "simgrid" / f"case{number}.json").read_text())
    cluster, index = simgrid_cluster(case)
    flows = [(index[f["src"]], index[f["dst"]], f["start_s"], f["bytes"]) for f in case["flows"]]
    assert run_flows(cluster, flows) == pytest.approx(case["finish_s"], rel=1e-9)


def star(count: int, bandwidth: float = 100.0, latency_s: float = 0.0) -> Cluster:
    """`count` devices on one switch."""
    devices = tuple(Device(name=f"d{i}", host=f"h{i}") for i in range(count))
    links = []
    for device in devices:
        for source, target in ((device.name, "switch"), ("switch", device.name)):
            links.append(Link(source=source, target=target, bandwidth_bytes_per_s=bandwidth, latency_s=latency_s))
    return Cluster(name="star", devices=devices, links=tuple(links))


def test_one_flow_takes_latency_and_bandwidth() -> None:
    assert run_flows(star(2, latency_s=0.25), [(0, 1, 1.0, 200.0)]) == [1 + 0.5 + 2]


def test_two_flows_share_the_receiver() -> None:
    """Both at 50 until t=4, when the first 200 are through; then 100."""
    assert run_flows(star(3), [(0, 2, 0.0, 200.0), (1, 2, 0.0, 300.0)]) == [4.0, 5.0]


def test_a_flow_held_up_elsewhere_leaves_its_share() -> None:
    """0->2 and 1->2 get 50 each at device 2, so 1->3 gets the other 50 of device 1, not 100."""
    ends = run_flows(star(4), [(0, 2, 0.0, 100.0), (1, 2, 0.0, 100.0), (1, 3, 0.0, 100.0)])
    assert ends == pytest.approx([2.0, 2.0, 2.0])
    slow = star(4).with_tier("link", bandwidth_bytes_per_s=100.0)
    narrow = Cluster(
        name="narrow",
        devices=slow.devices,
        links=tuple(
            Link(source=x.source, target=x.target, bandwidth_bytes_per_s=20.0 if x.target == "d2" else 100.0)
            for x in slow.links
        ),
    )
    # 10 each into device 2 (10 s for 100 bytes); 1->3 gets the remaining 90 of device 1's link
    assert run_flows(narrow, [(0, 2, 0.0, 100.0), (1, 2, 0.0, 100.0), (1, 3, 0.0, 90.0)]) == [10.0, 10.0, 1.0]


def test_a_late_flow_slows_the_first() -> None:
    """Alone until t=1 (100 bytes), then half speed for 200 bytes until t=3 each, then alone again."""
    assert run_flows(star(3), [(0, 2, 0.0, 300.0), (1, 2, 1.0, 100.0)]) == [4.0, 3.0]


def test_both_directions_of_a_link_have_its_whole_bandwidth() -> None:
    assert run_flows(star(2), [(0, 1, 0.0, 100.0), (1, 0, 0.0, 100.0)]) == [1.0, 1.0]


def test_zero_bytes_take_the_latency() -> None:
    assert run_flows(star(2, latency_s=0.5), [(0, 1, 0.0, 0.0)]) == [1.0]


def test_a_measured_curve_is_met_exactly_when_alone_and_shared_otherwise() -> None:
    curve = Curve(points=((10.0, 1.0), (1000.0, 8.0)))
    devices = tuple(Device(name=f"d{i}", host=f"h{i}") for i in range(2))
    link = Link(source="d0", target="d1", bandwidth_bytes_per_s=1e9, curve=curve)
    cluster = Cluster(name="pair", devices=devices, links=(link,))
    alone = curve.seconds(100.0)
    assert run_flows(cluster, [(0, 1, 0.0, 100.0)]) == [pytest.approx(alone, rel=1e-12)]
    assert run_flows(cluster, [(0, 1, 0.0, 100.0)] * 2) == pytest.approx([2 * alone] * 2, rel=1e-12)


def test_routes_wait_for_their_slowest_pair_and_go_as_fast_as_their_fullest_link() -> None:
    """Latency and bandwidth of routes, on a cluster and on those that differ from it in their links' speed."""
    cluster = two_tier(
        4,
        2,
        Wire(bandwidth_bytes_per_s=1e7, latency_s=1e-5, tier="a"),
        Wire(bandwidth_bytes_per_s=1e6, latency_s=3e-4, tier="b"),
    )
    ring, twice = ((0, 1), (1, 2), (2, 3), (3, 0)), ((0, 2), (1, 3))
    routes = (Route(((0, 1),)), Route(ring, rounds=6), Route(twice, copies=2), Route(twice), Route(((1, 1),)))
    faster = cluster.with_tier("b", bandwidth_bytes_per_s=5e7, latency_s=1e-6)
    curve = Curve(points=((1.0, 1.0), (2.0, 2.0)))
    measured = replace(cluster, links=tuple(replace(x, curve=curve) if x.tier == "b" else x for x in cluster.links))
    for on in (cluster, faster, cluster.with_tier("a", bandwidth_bytes_per_s=1e3), measured):
        over = paths(routes, on)
        for number, route in enumerate(routes):
            crossed = [link for pair in route.single for link in on.route(*pair)]
            rates = [on.links[link].bandwidth_bytes_per_s / crossed.count(link) for link in crossed]
            assert over.delay_s[number] == route.rounds * max(on.latency_s(*pair) for pair in route.single)
            assert over.rate_bytes_per_s[number] == min(rates, default=np.inf)
            assert over.measured[number] == any(on.links[link].curve for link in crossed)
            row = slice(over.start[number], over.start[number + 1])
            weights = Counter(link for pair in route.pairs for link in on.route(*pair))
            assert dict(zip(over.link[row].tolist(), over.weight[row].tolist(), strict=True)) == dict(weights)


def full(cluster: Cluster, route: Route, size: float) -> tuple[float, float]:
    """Of a transfer that has its links for itself: the share of its time for which its fullest link is full, and what
    bytes over bandwidth would say."""
    builder = GraphBuilder()
    builder.add(Kind.ACTIVATION, 1, route=builder.route(route), bytes=size)
    graph = builder.build([0.0] * len(cluster.devices), ())
    rates = np.array([link.bandwidth_bytes_per_s for link in cluster.links]) * simulate(graph, cluster).step_s
    return tuple(float((of(graph, cluster) / rates).max()) for of in (link_work, link_bytes))  # type: ignore[return-value]


def test_no_link_is_more_than_full() -> None:
    """A message gets 0.9 of a line of which collectives get 0.285; a switch that sums has devices send bytes once."""
    share, by_bytes = full(read_cluster("azure-v100-10g", devices=8), Route(((0, 4),)), 1e10)
    assert (share, by_bytes) == (pytest.approx(1, rel=1e-3), pytest.approx(0.9 / 0.285, rel=1e-3))
    node = read_cluster("dgx-h100", devices=8)
    share, by_bytes = full(node, *exchange("all-reduce", tuple(range(8)), 1e10))
    assert share == pytest.approx(1, rel=1e-2)
    assert by_bytes == pytest.approx(2 * 7 / 8 * 0.772, rel=1e-2)
