"""How long collectives take: closed forms, their messages one by one, and what SimGrid says."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

import numpy as np
import pytest
from test_closed_forms import BANDWIDTH, LATENCY, star
from test_network import run_flows

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.engine import simulate
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.topologies import Wire, two_tier
from simulator.taskgraph import Kind, Route

EXACT = 1e-9
SIZE = 1e8
SIZES = [*range(2, 18), 24, 31, 32, 33, 48, 63, 64]
NODE, NET = (
    Wire(bandwidth_bytes_per_s=1e11, latency_s=1e-6, tier="intra"),
    Wire(bandwidth_bytes_per_s=1e9, latency_s=2e-5, tier="inter"),
)


def tasks_of(steps: list[CollectiveTask], cluster: Cluster) -> float:
    """Seconds of `steps` alone on `cluster`."""
    builder = GraphBuilder()
    tasks: list[int] = []
    for step in steps:
        if step.route is None:
            added = builder.add(Kind.UPDATE, 1, device=step.device, seconds=step.seconds)
        else:
            route = builder.route(step.route)
            added = builder.add(Kind.SYNCHRONISATION, 1, route=route, bytes=step.bytes, seconds=step.seconds)
        builder.depend(added, [tasks[i] for i in step.after])
        tasks.append(int(added[0]))
    return simulate(builder.build(np.zeros(len(cluster.devices)), ("",)), cluster).step_s


def seconds(name: str, cluster: Cluster, servers: int | None = None) -> float:
    """Seconds of one all-reduce of SIZE bytes over all workers of `cluster`."""
    return tasks_of(collectives.load(name).tasks(cluster, range(cluster.workers), SIZE, 0.0, servers), cluster)


# Closed forms, on a switch, where no two messages meet.


@pytest.mark.parametrize("n", SIZES)
def test_a_ring_takes_its_closed_form(n: int) -> None:
    assert seconds("ring", star(n)) == pytest.approx(2 * (n - 1) / n * SIZE / BANDWIDTH + 2 * (n - 1) * LATENCY, EXACT)


@pytest.mark.parametrize("n", SIZES)
def test_halving_doubling_takes_its_closed_form(n: int) -> None:
    power = 2 ** int(log2(n))
    folded_s = 2 * (SIZE / BANDWIDTH + LATENCY) if power < n else 0.0
    whole_s = 2 * (power - 1) / power * SIZE / BANDWIDTH + 2 * log2(power) * LATENCY
    assert seconds("halving-doubling", star(n)) == pytest.approx(whole_s + folded_s, EXACT)


@pytest.mark.parametrize("n", SIZES)
def test_a_double_binary_tree_takes_its_closed_form(n: int) -> None:
    edges = {2: 2, 3: 3}.get(n, 4)
    expected_s = edges / 2 * SIZE / BANDWIDTH + 2 * ceil(log2(n)) * LATENCY
    assert seconds("tree", star(n)) == pytest.approx(expected_s, EXACT)


@pytest.mark.parametrize("n", [n for n in SIZES if n <= 32])
def test_all_to_all_takes_its_closed_form(n: int) -> None:
    assert seconds("all-to-all", star(n)) == pytest.approx(2 * (n - 1) / n * SIZE / BANDWIDTH + 2 * LATENCY, EXACT)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 1), (4, 2), (4, 4), (7, 3), (16, 5), (32, 2), (64, 64)])
def test_servers_take_their_closed_form(n: int, k: int) -> None:
    own_s = 2 * (max(n / k, 1) * SIZE / BANDWIDTH + LATENCY)
    assert seconds("ps", star(n, servers=k)) == pytest.approx(own_s, EXACT)
    shared_s = 2 * ((n - 1) / k * SIZE / BANDWIDTH + LATENCY)
    assert seconds("ps-workers", star(n), servers=k) == pytest.approx(shared_s, EXACT)


@pytest.mark.parametrize(("nodes", "each"), [(2, 2), (2, 4), (4, 4), (8, 8), (3, 2), (1, 4), (4, 1)])
def test_a_hierarchy_takes_its_closed_form(nodes: int, each: int) -> None:
    """Inside, a hop crosses two node wires; between hosts, two node wires and two network wires."""
    cluster = two_tier(nodes * each, each, NODE, NET)
    inside_s = 2 * (each - 1) / each * SIZE / 1e11 + 2 * (each - 1) * 2e-6
    ring_s = 2 * (nodes - 1) / nodes * SIZE / 1e9 + 2 * (nodes - 1) * (2e-6 * (each > 1) + 4e-5)
    if nodes > 1 and each > 1:
        assert seconds("hierarchical", cluster) == pytest.approx(inside_s + ring_s, EXACT)
        edges = {2: 2, 3: 3}.get(nodes, 4)
        tree_s = edges / 2 * SIZE / 1e9 + 2 * ceil(log2(nodes)) * 4.2e-5
        assert seconds("hierarchical-tree", cluster) == pytest.approx(inside_s + tree_s, EXACT)
    else:
        assert seconds("hierarchical", cluster) == seconds("ring", cluster)


def test_hierarchical_with_a_node_part_full() -> None:
    """Leaders of 4, 4 and 2: up a chain of 3 hops, a ring of 3, down the chain."""
    cluster = two_tier(10, 4, NODE, NET)
    chain_s = SIZE / 1e11 + 3 * 2e-6
    ring_s = 4 / 3 * SIZE / 1e9 + 4 * 4.2e-5
    assert seconds("hierarchical", cluster) == pytest.approx(2 * chain_s + ring_s, EXACT)


# Fluid against expanded: a message for each in each round.


def ring_in_rounds(n: int) -> list[CollectiveTask]:
    """Round r + 1 of a device waits for its own and its neighbour's round r."""
    steps: list[CollectiveTask] = []
    for turn in range(2 * (n - 1)):
        for i in range(n):
            after = ((turn - 1) * n + i, (turn - 1) * n + (i - 1) % n) if turn else ()
            steps.append(CollectiveTask(route=Route(((i, (i + 1) % n),)), bytes=SIZE / n, after=after))
    return steps


def expanded(steps: list[CollectiveTask]) -> list[CollectiveTask]:
    """Every pair of every step as a message of its own; the next step waits for all of them."""
    messages: list[CollectiveTask] = []
    numbers: list[tuple[int, ...]] = []
    for step in steps:
        after = tuple(i for earlier in step.after for i in numbers[earlier])
        assert step.route is not None
        numbers.append(tuple(range(len(messages), len(messages) + len(step.route.pairs))))
        messages += [replace(step, route=Route((pair,)), after=after) for pair in step.route.pairs]
    return messages


@pytest.mark.parametrize("n", [2, 3, 4, 8, 13])
@pytest.mark.parametrize("per_node", [1, 4])
def test_a_fluid_ring_is_its_rounds(n: int, per_node: int) -> None:
    """Also where hops differ, since every round waits for the slowest hop."""
    cluster = star(n) if per_node == 1 else two_tier(n, per_node, NODE, NET)
    assert seconds("ring", cluster) == pytest.approx(
        tasks_of(ring_in_rounds(n), cluster), 1e-9 if per_node == 1 else 5e-2
    )


@pytest.mark.parametrize("name", ["halving-doubling", "all-to-all"])
@pytest.mark.parametrize("n", [2, 3, 8, 16])
def test_fluid_phases_are_their_messages(name: str, n: int) -> None:
    cluster = star(n)
    steps = collectives.load(name).tasks(cluster, range(n), SIZE, 0.0)
    assert tasks_of(steps, cluster) == pytest.approx(tasks_of(expanded(steps), cluster), EXACT)


def test_a_congested_all_to_all_takes_what_its_messages_take() -> None:
    """8 devices in 2 nodes share the wires between: 4 x 4 messages of S/8 each way."""
    cluster = two_tier(8, 4, NODE, NET)
    steps = collectives.load("all-to-all").tasks(cluster, range(8), SIZE, 0.0)
    assert tasks_of(steps, cluster) == pytest.approx(2 * (16 / 8 * SIZE / 1e9 + 4.2e-5), EXACT)
    assert tasks_of(expanded(steps), cluster) == pytest.approx(tasks_of(steps, cluster), EXACT)


# SimGrid's finish times (model CM02, corrections off) of the expanded flows, where they contend.

SIMGRID_ALL_TO_ALL_S = 0.20004199999999997  # all 56 messages of S/8 at once, 8 devices in 2 nodes: the last
SIMGRID_PHASES_S = (0.0005020000000000001, 0.000252, 0.050042)  # halving-doubling on the same, phase by phase
SIMGRID_PUSHES_S = (0.3233743333333333, 0.35337433333333335, 0.3833743333333334, 0.40004100000000004,
                    0.27004100000000003, 0.360041)  # fmt: skip
"""Worker w of 6 in nodes of 4 starts at 10 w^2 ms to push S/2 to each of two servers; both pushes end together."""


def test_lockstep_phases_take_what_simgrid_says() -> None:
    cluster = two_tier(8, 4, NODE, NET)
    assert seconds("all-to-all", cluster) == pytest.approx(2 * SIMGRID_ALL_TO_ALL_S, EXACT)
    assert seconds("halving-doubling", cluster) == pytest.approx(2 * sum(SIMGRID_PHASES_S), EXACT)


def test_staggered_pushes_end_when_simgrid_says() -> None:
    cluster = two_tier(6, 4, NODE, NET, servers=2)
    steps = collectives.load("ps").tasks(cluster, range(6), SIZE, 0.0)
    pushes = [step for step in steps if step.needs]
    flows = [(*step.route.pairs[0], 0.01 * step.needs[0] ** 2, step.bytes) for step in pushes if step.route]
    cluster = replace(cluster, devices=tuple(replace(device, role="worker") for device in cluster.devices))
    assert run_flows(cluster, flows) == pytest.approx(SIMGRID_PUSHES_S * 2, EXACT)
