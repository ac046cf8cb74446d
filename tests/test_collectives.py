"""Every collective against its closed form, and against its messages one by one."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from math import ceil, log2
from pathlib import Path

import numpy as np
import pytest
from test_closed_forms import BANDWIDTH, LATENCY, chain, replicated, star
from test_network import run_flows

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import Collective, CollectiveTask
from simulator.engine import simulate
from simulator.errors import InputError, UnknownNameError
from simulator.lowering.gradients import static_bytes
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.plan import Synchronisation
from simulator.report.volume import communication_volume
from simulator.run import run
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


def pairs_bytes(steps: list[CollectiveTask]) -> Counter[tuple[int, int]]:
    """Bytes from device to device."""
    sent_bytes: Counter[tuple[int, int]] = Counter()
    for step in steps:
        for pair in step.route.pairs if step.route else ():
            sent_bytes[pair] += step.bytes  # type: ignore[assignment]
    return sent_bytes


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


# What a collective must do.


def sums_of(steps: list[CollectiveTask], n: int, servers: int) -> list[set[int]]:
    """Whose gradients each device knows in the end, if every message carried all that its sender knew.

    Messages of one step of several rounds are repeated as often.
    """
    known = [{i} for i in range(n)] + [set() for _ in range(servers)]
    for step in steps:
        for _ in range(step.route.rounds if step.route else 0):
            assert step.route is not None
            before = [set(gradients) for gradients in known]
            for a, b in step.route.pairs:
                known[b] |= before[a]
    return known[:n]


@pytest.mark.parametrize("name", collectives.names())
@pytest.mark.parametrize(("n", "each"), [(2, 1), (3, 1), (4, 2), (6, 1), (8, 4), (10, 4), (16, 4), (19, 3)])
def test_everyone_gets_the_sum_of_all(name: str, n: int, each: int) -> None:
    servers = 2 if name == "ps" else 0
    cluster = two_tier(n, each, NODE, NET, servers=servers)
    steps = collectives.load(name).tasks(cluster, range(n), SIZE, 1.0)
    assert sums_of(steps, n, servers) == [set(range(n))] * n
    assert {d for step in steps for d in step.needs} == {d for step in steps for d in step.delivers} == set(range(n))
    assert all(i < number for number, step in enumerate(steps) for i in step.after)


@pytest.mark.parametrize("n", SIZES)
def test_the_trees_share_the_work(n: int) -> None:
    """No device has more than four tree edges, each tree has n - 1, and only roots are inner nodes of both."""
    (step,) = collectives.load("tree").tasks(star(n), range(n), SIZE, 0.0)
    assert step.route is not None and len(step.route.pairs) == 4 * (n - 1)
    edges = Counter(device for pair in step.route.pairs for device in pair)
    assert max(edges.values()) / 2 == {2: 2, 3: 3}.get(n, 4)


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("ring", 2 * 7),
        ("halving-doubling", 2 * 7),
        ("tree", 2 * 7),
        ("all-to-all", 2 * 7),
        ("hierarchical", 2 * 7),
        ("ps", 2 * 8),
        ("ps-workers", 2 * 7),
    ],
)
def test_bytes_moved_in_gradients(name: str, total: int) -> None:
    """Summing N gradients needs N - 1 of them moved, and N - 1 results; a server of its own is one device more."""
    cluster = two_tier(8, 4, NODE, NET, servers=1)
    moved = pairs_bytes(collectives.load(name).tasks(cluster, range(8), SIZE, 0.0))
    assert sum(moved.values()) == pytest.approx(total * SIZE, EXACT)
    assert not any(a == b for a, b in moved)


def test_servers_on_workers_spread_over_the_hosts() -> None:
    cluster = two_tier(8, 4, NODE, NET)
    for count, expected in ((None, {0, 4}), (1, {0}), (3, {0, 1, 4}), (8, set(range(8)))):
        steps = collectives.load("ps-workers").tasks(cluster, range(8), SIZE, 1.0, count)
        assert {step.device for step in steps if step.route is None} == expected
    with pytest.raises(InputError, match="serving_workers is 9: of 8 workers 1 to 8 can serve"):
        collectives.load("ps-workers").tasks(cluster, range(8), SIZE, 1.0, 9)


# In a step.


def test_256_replicas_take_one_task_per_bucket() -> None:
    """A ring that meets no other traffic needs no event per message: a task per layer, in the closed form's time."""
    profile, n = chain(4, batch=256), 256
    synchronisation = Synchronisation(bucket_bytes=0, overlap=False)
    done = run(profile, star(n), replicated(profile, n, synchronisation=synchronisation))
    assert (done.graph.kind == Kind.SYNCHRONISATION).sum() == 4
    each_s = 2 * (n - 1) / n * profile.layers[0].parameter_bytes / BANDWIDTH + 2 * (n - 1) * LATENCY
    assert done.timeline.step_s == pytest.approx(4 * 0.03 / n + 4 * each_s, EXACT)


@pytest.mark.parametrize(("first", "layers"), [(None, [2, 2, 1]), (0, [1, 2, 2]), (1, [1, 2, 2]), (3, [3, 2])])
def test_the_first_bucket_may_hold_less_or_more(first: int | None, layers: list[int]) -> None:
    """Buckets of two layers over a chain of five; the first closes at `first` layers, 0 being one at a time."""
    profile = chain(5, batch=8)
    each = profile.layers[0].parameter_bytes
    limits = Synchronisation(bucket_bytes=2 * each, first_bucket_bytes=None if first is None else first * each)
    buckets = ShardedModel(profile, replicated(profile, 2, synchronisation=limits)).buckets
    assert [bucket.size_bytes // each for bucket in buckets] == layers
    assert buckets[0].pieces[0].layer == 4


@pytest.mark.parametrize("name", [n for n in collectives.names() if not collectives.load(n).updates_on_server])
def test_buckets_leave_one_after_the_other(name: str) -> None:
    """Without overlap, four buckets take four times one."""
    profile, cluster = chain(4, batch=8), two_tier(8, 4, NODE, NET)
    step_s = {
        bucket: run(profile, cluster, replicated(profile, 8, synchronisation=Synchronisation(
            collective=name, bucket_bytes=bucket, overlap=False
        ))).timeline.step_s - 4 * 0.03 / 8
        for bucket in (0, profile.layers[0].parameter_bytes * 2)
    }  # fmt: skip
    steps = collectives.load(name).tasks(cluster, range(8), profile.layers[0].parameter_bytes, 0.0)
    assert step_s[0] == pytest.approx(4 * tasks_of(steps, cluster), EXACT)
    assert step_s[0] > step_s[profile.layers[0].parameter_bytes * 2]


@pytest.mark.parametrize("name", collectives.names())
def test_a_steps_volume_is_the_collectives(name: str) -> None:
    profile, cluster = chain(4, batch=8), two_tier(8, 4, NODE, NET, servers=1)
    plan = replicated(profile, 8, synchronisation=Synchronisation(collective=name))
    volume = communication_volume(ShardedModel(profile, plan), cluster)
    simulated = run(profile, cluster, plan).report.communication_bytes
    assert np.array(simulated.matrix) == pytest.approx(np.array(volume.matrix), EXACT)
    assert volume.total == pytest.approx((16 if name == "ps" else 14) * profile.parameter_bytes, EXACT)


def test_half_precision_and_compression_send_less() -> None:
    """16-bit gradients halve the bytes, a ratio of 10 makes them a tenth; compressing delays the bucket."""
    profile = chain(4, batch=4)
    size, cost_s_per_byte = profile.parameter_bytes, 1e-9
    lean = Synchronisation(half_precision=True, compression_ratio=10.0, overlap=False)
    for synchronisation, compressing_s in ((lean, 0.0), (replace(lean, compression_s_per_byte=cost_s_per_byte), 1.0)):
        report = run(profile, star(4), replicated(profile, 4, synchronisation=synchronisation)).report
        expected_s = 4 * 0.03 / 4 + 1.5 * size / 20 / BANDWIDTH + 6 * LATENCY + compressing_s * cost_s_per_byte * size
        assert report.step_s == pytest.approx(expected_s, EXACT)
        assert report.communication_bytes.total == pytest.approx(6 * size / 20, EXACT)
    narrow = replace(profile, dtype="bfloat16")
    assert run(narrow, star(4), replicated(narrow, 4, synchronisation=replace(lean, compression_ratio=1.0))).report \
        .communication_bytes.total == pytest.approx(6 * size, EXACT)  # fmt: skip


def test_compression_runs_as_soon_as_its_gradient_is_there() -> None:
    """Two layers, a bucket each: the last layer's is compressed before the first layer's backward goes on."""
    profile = chain(2, batch=2)
    options = {"bucket_bytes": 0, "compression_ratio": 1e6, "compression_s_per_byte": 1e-9}
    done = run(profile, star(2), replicated(profile, 2, synchronisation=Synchronisation(**options)))  # type: ignore[arg-type]
    graph, timeline = done.graph, done.timeline
    compressing = np.flatnonzero((graph.kind == Kind.UPDATE) & (graph.device == 0) & (graph.layer >= 0))
    assert timeline.start_s[compressing] == pytest.approx([0.01 + 0.01, 0.03 + 1e-3])


def test_state_lies_with_the_servers() -> None:
    profile = chain(4, batch=4)
    size = profile.parameter_bytes
    for name, servers, expected in (
        ("ring", None, [4.0, 4.0, 4.0, 4.0, 0.0]),
        ("ps", None, [2.0, 2.0, 2.0, 2.0, 4.0]),
        ("ps-workers", 2, [3.0, 3.0, 2.0, 2.0, 0.0]),
    ):
        plan = replicated(
            profile, 4, optimizer_state=2.0, synchronisation=Synchronisation(collective=name, serving_workers=servers)
        )
        held = static_bytes(ShardedModel(profile, plan), star(4, servers=1))
        assert held == pytest.approx(np.array(expected) * size)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"compression_ratio": 0.5}, "compression_ratio is 0.5: it is at least 1"),
        ({"compression_s_per_byte": -1.0}, "compression_s_per_byte is -1.0"),
        ({"serving_workers": 0}, "serving_workers is 0: it is at least 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Synchronisation(**options)  # type: ignore[arg-type]


def test_every_pair_of_names_is_told_apart() -> None:
    """No two collectives send the same messages."""
    cluster = two_tier(8, 4, NODE, NET, servers=1)
    routes = {
        name: [(task.route, task.bytes) for task in collectives.load(name).tasks(cluster, range(8), SIZE)]
        for name in collectives.names()
    }
    assert all(routes[a] != routes[b] for a, b in itertools.combinations(routes, 2))


# The registry, and the facts that others ask of a collective.


def test_the_folder_is_the_registry() -> None:
    folder = Path(collectives.__file__).parent
    assert set(collectives.names()) == {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
    with pytest.raises(UnknownNameError, match="unknown collective 'rng', did you mean 'ring'"):
        collectives.load("rng")


@pytest.mark.parametrize("name", collectives.names())
def test_servers_are_who_computes_in_the_tasks(name: str) -> None:
    """And a collective that needs a server of the cluster's own says so where there is none."""
    collective, group = collectives.load(name), range(8)
    cluster = two_tier(8, 4, NODE, NET, servers=2)
    computing = {task.device for task in collective.tasks(cluster, group, SIZE, 1.0) if task.route is None}
    assert computing == set(collective.servers(cluster, group))
    assert bool(computing) == collective.updates_on_server
    assert collective.needs_server == (computing == set(cluster.servers))
    without = two_tier(8, 4, NODE, NET)
    if collective.needs_server:
        with pytest.raises(InputError, match=r"has no parameter server; add --servers 1"):
            collective.servers(without, group)
    else:
        assert collective.tasks(without, group, SIZE)


def test_a_collective_sums_in_one_way() -> None:
    with pytest.raises(InputError, match="one of the two"):
        Collective()
    with pytest.raises(InputError, match="one of the two"):
        Collective(all_reduce=collectives.load("ring").all_reduce, serving=collectives.load("ps").serving)


def test_a_preset_gets_the_server_that_it_needs() -> None:
    """One where nothing is said of servers; a file that lists none is refused."""
    counts = [len(read_cluster("cpu-1g", devices=2, servers=k, needs_server=True).servers) for k in (None, 0, 1, 3)]
    assert counts == [1, 0, 1, 3]
    assert not read_cluster("cpu-1g", devices=2).servers


def test_a_file_lists_the_server_that_it_needs(tmp_path: Path) -> None:
    bare, served = tmp_path / "bare.yaml", tmp_path / "served.yaml"
    write_cluster(star(2), bare)
    write_cluster(star(2, servers=1), served)
    assert len(read_cluster(served, needs_server=True).servers) == 1
    with pytest.raises(InputError, match=r"servers is 1: .* is a file; list its servers there"):
        read_cluster(bare, needs_server=True)
