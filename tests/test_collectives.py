"""What every collective must do: sums, bytes, tasks in a step, and the facts that others ask of it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from counted_volume import communication_volume
from plans import planned
from test_closed_forms import BANDWIDTH, LATENCY, chain, replicated, star
from test_collective_times import EXACT, NET, NODE, SIZE, SIZES, tasks_of

from simulator import collectives
from simulator.collectives import Collective, CollectiveTask
from simulator.errors import InputError, UnknownNameError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import static_bytes
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.network.topologies import two_tier
from simulator.plan import Synchronisation
from simulator.run import run, step_report
from simulator.taskgraph import Kind


def pairs_bytes(steps: list[CollectiveTask]) -> Counter[tuple[int, int]]:
    """Bytes from device to device."""
    sent_bytes: Counter[tuple[int, int]] = Counter()
    for step in steps:
        for pair in step.route.pairs if step.route else ():
            sent_bytes[pair] += step.bytes  # type: ignore[assignment]
    return sent_bytes


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


@pytest.mark.parametrize("microbatches", [1, 2])
def test_buffers_are_sent_to_all_before_the_first_pass(microbatches: int) -> None:
    """From device to device: as many bytes over each of three routes, and the step is that much longer."""
    profile, size = chain(4, batch=8), 4e4
    plan = replace(replicated(profile, 4), microbatches=microbatches)
    sending = replace(plan, synchronisation=replace(plan.synchronisation, broadcast_bytes=size))
    without, with_ = run(profile, star(4), plan).report, run(profile, star(4), sending).report
    assert with_.step_s - without.step_s == pytest.approx(size / BANDWIDTH + 3 * LATENCY, EXACT)
    assert with_.communication_bytes.parameters == pytest.approx(3 * size, EXACT)
    volume = communication_volume(ShardedModel(profile, sending), star(4))
    assert np.array(with_.communication_bytes.matrix) == pytest.approx(np.array(volume.matrix), EXACT)
    assert step_report(profile, star(4), sending).step_s == with_.step_s
    options = {"judged": False, "batch_size": 8, "synchronisation": sending.synchronisation}
    staged = planned("pipeline", profile, star(4), **options)  # which sums no gradients between devices
    assert run(profile, star(4), staged).report.communication_bytes.parameters == 0
    alone = run(profile, star(1), replicated(profile, 1, synchronisation=sending.synchronisation)).report
    assert alone.communication_bytes.total == 0


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
