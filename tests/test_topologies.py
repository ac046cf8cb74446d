"""Topologies: who is joined to whom, and that messages take the shortest way at the right bandwidth."""

from __future__ import annotations

import random
from itertools import pairwise, permutations

import networkx as nx
import pytest
from tori import ring, torus

from simulator.cluster import Cluster, Device, Link
from simulator.errors import InputError
from simulator.network.topologies import Wire, flat_switch, take, two_tier

WIRE = Wire(bandwidth_bytes_per_s=1e9, latency_s=1e-6)
INTRA = Wire(bandwidth_bytes_per_s=100e9, latency_s=1e-6, tier="intra")
INTER = Wire(bandwidth_bytes_per_s=1e9, latency_s=10e-6, tier="inter")
EVERY = [
    flat_switch(5, WIRE, servers=2),
    two_tier(5, 2, INTRA, INTER, servers=2),
    ring(5, WIRE, servers=2),
    torus((2, 3), WIRE, servers=2),
    torus((2, 2, 3), WIRE, servers=2),
]


def path(cluster: Cluster, source: int, target: int) -> str:
    """The way of a message, e.g. "a > switch > b"."""
    links = [cluster.links[i] for i in cluster.route(source, target)]
    return " > ".join([links[0].source, *(link.target for link in links)])


@pytest.mark.parametrize("cluster", EVERY, ids=lambda cluster: cluster.name)
def test_all_members_reach_each_other_both_ways_at_the_same_cost(cluster: Cluster) -> None:
    assert len(cluster.servers) == 2
    for a, b in permutations(range(len(cluster.devices)), 2):
        assert cluster.transfer_s(a, b, 1e6) == cluster.transfer_s(b, a, 1e6) > 0


@pytest.mark.parametrize("cluster", EVERY, ids=lambda cluster: cluster.name)
def test_servers_have_hosts_of_their_own_and_come_last(cluster: Cluster) -> None:
    servers = [cluster.devices[i] for i in cluster.servers]
    workers = {device.host for device in cluster.devices[: cluster.workers]}
    assert all(server.role == "server" for server in servers)
    assert len({server.host for server in servers} - workers) == 2


def test_a_flat_switch_joins_workers_and_servers() -> None:
    cluster = flat_switch(3, WIRE, servers=1)
    assert path(cluster, 0, 2) == "host0 > switch > host2"
    assert path(cluster, 3, 1) == "server0 > switch > host1"
    assert cluster.latency_s(0, 2) == 2e-6


def test_two_tier_stays_inside_a_node_where_it_can() -> None:
    cluster = two_tier(5, 2, INTRA, INTER, servers=1)
    assert [device.host for device in cluster.devices] == ["node0", "node0", "node1", "node1", "node2", "server0"]
    assert path(cluster, 2, 3) == "node1/device0 > node1/switch > node1/device1"
    assert path(cluster, 0, 3) == "node0/device0 > node0/switch > core > node1/switch > node1/device1"
    assert path(cluster, 5, 0) == "server0 > core > node0/switch > node0/device0"
    assert cluster.bandwidth_bytes_per_s(2, 3) == 100e9
    assert cluster.bandwidth_bytes_per_s(0, 3) == 1e9
    assert cluster.latency_s(0, 3) == pytest.approx(22e-6, rel=1e-12)


def test_two_tier_shares_one_uplink_per_node() -> None:
    cluster = two_tier(4, 2, INTRA, INTER)
    shared = set(cluster.route(0, 2)) & set(cluster.route(1, 3))
    assert {cluster.links[i].name for i in shared} == {"node0/switch->core", "core->node1/switch"}


def test_two_tier_overrides_reach_one_tier_only() -> None:
    cluster = two_tier(4, 2, INTRA, INTER).with_tier("inter", bandwidth_bytes_per_s=5e9, latency_s=0.0)
    assert cluster.bandwidth_bytes_per_s(0, 2) == 5e9
    assert cluster.bandwidth_bytes_per_s(0, 1) == 100e9
    assert cluster.latency_s(0, 2) == 2e-6


def test_cores_belong_to_nodes_with_workers() -> None:
    cluster = two_tier(3, 2, INTRA, INTER, cores_per_node=8, servers=1)
    assert cluster.host_cores == {"node0": 8, "node1": 8}


def test_a_ring_is_walked_the_shorter_way_round() -> None:
    cluster = ring(6, WIRE)
    assert len(cluster.links) == 12
    assert path(cluster, 0, 2) == "host0 > host1 > host2"
    assert path(cluster, 0, 5) == "host0 > host5"
    assert max(len(cluster.route(0, i)) for i in range(6)) == 3


@pytest.mark.parametrize(("devices", "links"), [(1, 0), (2, 2), (3, 6)])
def test_small_rings_have_no_double_links(devices: int, links: int) -> None:
    assert len(ring(devices, WIRE).links) == links


def test_a_torus_wraps_round_on_every_axis() -> None:
    cluster = torus((4, 4), WIRE)
    assert len(cluster.links) == 2 * 2 * 16  # two neighbours ahead per device, a link each way
    hops = [[len(cluster.route(0, 4 * row + column)) for column in range(4)] for row in range(4)]
    assert hops == [[0, 1, 2, 1], [1, 2, 3, 2], [2, 3, 4, 3], [1, 2, 3, 2]]


def test_a_torus_of_three_dimensions() -> None:
    cluster = torus((2, 3, 4), WIRE)
    # Axes of 2, 3 and 4 give 1, 2 and 2 neighbours.
    assert all(cluster._routes.graph.out_degree(device.name) == 5 for device in cluster.devices)
    assert len(cluster.route(0, 23)) == 1 + 1 + 1  # (1, 2, 3) is one step back on every axis
    assert len(cluster.route(0, 2)) == 2


def test_servers_are_spread_over_a_torus() -> None:
    cluster = torus((4, 4), WIRE, servers=2)
    assert path(cluster, 16, 0) == "server0 > host0"
    assert path(cluster, 17, 8) == "server1 > host8"


def of_graph(graph: nx.DiGraph[str], devices: list[str]) -> Cluster:
    """A link along every edge; nodes that are no device are switches."""
    members = tuple(Device(name=name, host=name) for name in devices)
    links = (Link(source=a, target=b, bandwidth_bytes_per_s=1e9) for a, b in graph.edges)
    return Cluster(name="graph", devices=members, links=tuple(links))


def test_a_directed_graph_has_links_one_way() -> None:
    cluster = of_graph(nx.DiGraph([("a", "b")]), ["a", "b"])
    assert path(cluster, 0, 1) == "a > b"
    with pytest.raises(InputError, match="no route from device 'b' to 'a'"):
        cluster.route(1, 0)


def test_workers_look_like_the_device_given() -> None:
    device = Device(name="gpu", host="", kind="T4", memory_bytes=16 * 2**30, speed=2.0, dollars_per_hour=1.0)
    cluster = two_tier(3, 2, INTRA, INTER, device=device)
    assert [d.name for d in cluster.devices] == ["node0/gpu0", "node0/gpu1", "node1/gpu0"]
    assert {(d.kind, d.memory_bytes, d.speed, d.dollars_per_hour) for d in cluster.devices} == {
        ("T4", 16 * 2**30, 2.0, 1.0)
    }


def test_take_keeps_servers() -> None:
    cluster = take(flat_switch(4, WIRE, servers=1), 2)
    assert [device.name for device in cluster.devices] == ["host0", "host1", "server0"]
    assert path(cluster, 1, 2) == "host1 > switch > server0"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: flat_switch(0, WIRE), "devices is 0: a cluster has at least 1"),
        (lambda: flat_switch(1, WIRE, servers=-1), "servers is -1: it is at least 0"),
        (lambda: two_tier(4, 0, INTRA, INTER), "per_node is 0: a node has at least 1 device"),
        (lambda: take(flat_switch(2, WIRE), 3), "devices is 3: cluster 'flat-switch' has 2 workers; use 1 to 2"),
    ],
)
def test_impossible_topologies_are_refused(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(InputError, match=message):
        build()


def drawn_tree(seed: int) -> Cluster:
    """A forest of 12 nodes, of which some leaves hold devices; every fourth link leads one way only."""
    drawn = random.Random(seed)
    graph = nx.DiGraph()
    graph.add_nodes_from(map(str, range(12)))
    for node in range(1, 12):
        if drawn.random() < 0.9:
            other = drawn.randrange(node)
            graph.add_edge(str(node), str(other))
            if drawn.random() < 0.75:
                graph.add_edge(str(other), str(node))
    return of_graph(graph, [str(node) for node in drawn.sample(range(12), 5)])


@pytest.mark.parametrize("cluster", [*EVERY, *map(drawn_tree, range(40))], ids=lambda cluster: cluster.name)
def test_routes_are_those_of_a_breadth_first_search(cluster: Cluster) -> None:
    """Trees are routed over the lowest common ancestor, all else by networkx: to the same links, or to none."""
    graph = nx.DiGraph((link.source, link.target) for link in cluster.links)
    graph.add_nodes_from(device.name for device in cluster.devices)
    numbers = {(link.source, link.target): number for number, link in enumerate(cluster.links)}
    for a, b in permutations(range(len(cluster.devices)), 2):
        ends = cluster.devices[a].name, cluster.devices[b].name
        if nx.has_path(graph, *ends):
            nodes = nx.single_source_shortest_path(graph, ends[0])[ends[1]]
            assert cluster.route(a, b) == tuple(numbers[hop] for hop in pairwise(nodes))
        else:
            with pytest.raises(InputError, match="no route"):
                cluster.route(a, b)
