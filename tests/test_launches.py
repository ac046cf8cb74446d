"""The host's launch queue beside each device: closed forms, cases by hand, what reports say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, plans, profiles
from small_networks import chain, switched

from simulator import cli, files
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.catalogue import read_runtime, write_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.network.transfers import uncontended_s
from simulator.plan import Plan, Sharding
from simulator.report.critical_path import binding_chain, critical_path_s, taken_s
from simulator.run import run
from simulator.runtime import IDEAL, Runtime
from simulator.studies.bottleneck import find_bottleneck
from simulator.taskgraph import Ints, Kind, TaskGraph
from simulator.workload import Profile

pytestmark = pytest.mark.usefixtures("engine")

EXACT = 1e-12
SECONDS = st.floats(0.0, 1e-2, allow_subnormal=False) | st.sampled_from((0.0, 1e-3))
BLOCKS = st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=12)
"""(launch, compute) seconds of the tasks of a block."""
HOST = ("forward_launch", "backward_launch", "update_launch", "collective_check", "step_overhead", "message_pause")
FIELDS = tuple(f"{name}_s" for name in HOST)
LAUNCHED = Runtime(
    name="launched",
    forward_launch_s=4e-4,
    backward_launch_s=7e-4,
    update_launch_s=2e-4,
    step_overhead_s=3e-3,
)
WIRE = Wire(bandwidth_bytes_per_s=1e6)
PAUSED = replace(LAUNCHED, message_pause_s=5e-3)


def row(launches: Sequence[float], seconds: Sequence[float], waits: Sequence[int] = ()) -> TaskGraph:
    """Tasks of device 0, each after the one before; the host waits before tasks number `waits`."""
    builder, count = GraphBuilder(), len(launches)
    host_waits = np.isin(np.arange(count), waits)
    columns = {"device": 0, "launch_s": launches, "host_waits": host_waits, "seconds": seconds}
    tasks = builder.add(Kind.FORWARD, count, **columns)
    builder.depend(tasks[1:], tasks[:-1])
    return builder.build(np.zeros(2), ())


def spans(graph: TaskGraph) -> list[tuple[float, float]]:
    timeline = simulate(graph, switched([1.0, 1.0]))
    return list(zip(timeline.start_s.tolist(), timeline.end_s.tolist(), strict=True))


@given(BLOCKS)
def test_a_chain_ends_with_the_longest_of_launches_and_then_compute(block: list[tuple[float, float]]) -> None:
    """max over k of (L[k] + g[k] + ... + g[n])."""
    launches, seconds = zip(*block, strict=True)
    launched = list(accumulate(launches))
    longest = max(launched[k] + sum(seconds[k:]) for k in range(len(block)))
    assert simulate(row(launches, seconds), switched([1.0])).step_s == pytest.approx(longest, rel=EXACT)


@given(BLOCKS, st.integers(1, 5))
def test_a_further_equal_block_takes_the_longer_of_its_launches_and_compute(
    block: list[tuple[float, float]], count: int
) -> None:
    launches, seconds = zip(*block, strict=True)
    steps = [simulate(row(launches * n, seconds * n), switched([1.0])).step_s for n in (count, count + 1)]
    assert steps[1] - steps[0] == pytest.approx(max(sum(launches), sum(seconds)), rel=1e-9, abs=1e-15)


def test_where_the_host_waits_the_queue_begins_again() -> None:
    """Launched at 1, 2, 4 and 5, the device is behind; a host that waits until 7 launches until 9 and 10."""
    launches, seconds = [1.0, 1.0, 2.0, 1.0], [5.0, 1.0, 1.0, 1.0]
    assert spans(row(launches, seconds)) == [(1, 6), (6, 7), (7, 8), (8, 9)]
    assert spans(row(launches, seconds, waits=[2])) == [(1, 6), (6, 7), (9, 10), (10, 11)]
    assert spans(row(launches, seconds, waits=[0, 2, 3])) == [(1, 6), (6, 7), (9, 10), (11, 12)]


def test_a_wait_does_not_bring_the_host_back() -> None:
    """The first task is taken at 0, and the second at 3; the host is done with them at 3 and at 7."""
    assert spans(row([3.0, 4.0, 1.0], [0.0, 1.0, 1.0], waits=[1, 2])) == [(3, 3), (7, 8), (9, 10)]


def test_a_device_that_waits_for_a_launch_is_taken_and_others_are_not() -> None:
    """Of two tasks of device 0 the first is taken at 0, though the one that may go ahead is ready before it starts."""
    builder = GraphBuilder()
    columns = {"device": [0, 0, 1], "seconds": 1.0, "priority": [1, 0, 0], "launch_s": [3.0, 0.0, 0.5]}
    builder.add(Kind.FORWARD, 3, **columns)
    builder.depend(1, 2)
    assert spans(builder.build(np.zeros(2), ())) == [(3, 4), (4, 5), (0.5, 1.5)]


@given(BLOCKS, st.sets(st.integers(0, 11)))
def test_an_unlaunched_graph_is_the_same_whether_the_host_waits(
    block: list[tuple[float, float]], waits: set[int]
) -> None:
    _, seconds = zip(*block, strict=True)
    bare = row([0.0] * len(block), seconds)
    none = replace(bare, launch_s=np.zeros(0), host_waits=np.zeros(0, dtype=np.bool_))
    assert spans(row([0.0] * len(block), seconds, sorted(waits))) == spans(bare) == spans(none)


@pytest.mark.parametrize("launch_s", [[-1.0, 0.0], [float("nan"), 0.0], [1.0]])
def test_launches_out_of_range_are_refused(launch_s: list[float]) -> None:
    graph = replace(row([0.0, 0.0], [1.0, 1.0]), launch_s=np.array(launch_s))
    with pytest.raises(InputError, match="launch_s"):
        simulate(graph, switched([1.0]))


@pytest.mark.parametrize("name", FIELDS)
def test_negative_launches_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        Runtime(**{name: -1e-6})  # type: ignore[arg-type]


@st.composite
def launched_runtimes(draw: st.DrawFn) -> Runtime:
    times = {name: draw(st.sampled_from((0.0, 1e-4, 1.3e-3))) for name in FIELDS}
    return Runtime(**times, overlap_slowdown=draw(st.sampled_from((1.0, 1.5))))


@settings(max_examples=laws.examples(20, 60))
@given(st.data(), profiles(), clusters(max_servers=1), launched_runtimes())
def test_what_holds_for_any_launched_run(
    data: st.DataObject, profile: Profile, cluster: Cluster, runtime: Runtime
) -> None:
    plan = replace(data.draw(plans(profile, cluster)), schedule="dataflow")
    done = run(profile, cluster, plan, runtime=runtime)
    graph, timeline, step_s = done.graph, done.timeline, done.report.step_s
    taken = taken_s(graph, timeline)
    late = np.zeros(len(cluster.devices))
    np.add.at(late, graph.device[graph.route < 0], (timeline.start_s - taken)[graph.route < 0])
    for number, device in enumerate(done.report.devices):
        waits = device.exposed_communication_s, device.bubble_s, device.idle_s, device.launch_s
        assert device.compute_s + sum(waits) == pytest.approx(step_s, rel=1e-9, abs=1e-15)
        assert min(waits) >= -1e-12
        assert device.launch_s <= late[number] + 1e-12  # two of no length may wait at the same time
    bound = binding_chain(graph, timeline)
    assert taken[bound[0]] == 0 and timeline.end_s[bound[-1]] == step_s
    assert all(timeline.end_s[before] == taken[after] for before, after in pairwise(bound))
    assert sum(done.report.path_s.values()) == pytest.approx(step_s, rel=1e-9)
    assert critical_path_s(graph, cluster) <= step_s * (1 + 1e-9)
    if runtime.overlap_slowdown == 1:
        assert step_s <= (uncontended_s(graph, cluster) + graph.launch_s).sum() * (1 + 1e-9)


@settings(max_examples=laws.examples(15, 30))
@given(st.data(), profiles(), clusters(max_servers=1), launched_runtimes())
def test_what_the_host_does_once_a_step_lengthens_it_by_that(
    data: st.DataObject, profile: Profile, cluster: Cluster, runtime: Runtime
) -> None:
    plan = data.draw(plans(profile, cluster, every_collective=True))
    without, with_it = (
        run(profile, cluster, plan, runtime=replace(runtime, step_overhead_s=seconds)).report for seconds in (0.0, 0.01)
    )
    assert with_it.step_s - without.step_s == pytest.approx(0.01, rel=1e-9)
    for before, after in zip(without.devices, with_it.devices, strict=True):
        assert after.compute_s == pytest.approx(before.compute_s, rel=1e-9, abs=1e-15)
        computes = before.compute_s > 0
        assert not computes or after.launch_s == pytest.approx(before.launch_s + 0.01, rel=1e-9)


def pipeline(schedule: str, microbatches: int = 2, **asked: object) -> tuple[Profile, Cluster, Plan]:
    """Four layers on two devices."""
    profile, cluster = chain([3.0, 3.0, 3.0, 3.0]), switched([1.0, 1.0])
    layers = [replace(x, parameter_bytes=100 * (x.name != "d"), update_s=0.1) for x in profile.layers]
    profile = replace(profile, layers=tuple(layers))
    settings = {"batch_size": 8, "microbatches": microbatches, "schedule": schedule, "judged": False}
    return profile, cluster, planned("pipeline", profile, cluster, **settings, **asked)


def of_kind(graph: TaskGraph, kind: Kind) -> Ints:
    return np.flatnonzero(graph.kind == kind)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble"])
def test_every_task_is_launched_as_its_runtime_does(schedule: str) -> None:
    profile, cluster, plan = pipeline(schedule)
    plan = replace(plan, recomputed=(("a", "b"),))
    graph = lower(ShardedModel(profile, plan), cluster, LAUNCHED)
    overhead = (graph.kind == Kind.UPDATE) & (graph.launch_s == 3e-3)
    assert sorted(graph.device[overhead].tolist()) == [0, 1] and graph.host_waits[overhead].all()
    updated = {4e-4, 2e-4}  # of layers a and b on one device, and of c on the other: d has no parameters
    for kind, seconds in ((Kind.FORWARD, {4e-4}), (Kind.RECOMPUTE, {4e-4}), (Kind.UPDATE, updated)):
        launches = graph.launch_s[(graph.kind == kind) & ~overhead]
        assert len(launches) and set(launches.tolist()) == seconds
    assert not graph.launch_s[graph.is_transfer].any()
    halved = schedule == "zero-bubble"
    assert (graph.kind == Kind.WEIGHT).any() == halved
    for layer, name in enumerate(graph.layer_names):
        own = graph.layer == layer
        split = halved and name != "d"  # which has no parameters
        assert set(graph.launch_s[own & (graph.kind == Kind.BACKWARD)].tolist()) == {3.5e-4 if split else 7e-4}
        assert set(graph.launch_s[own & (graph.kind == Kind.WEIGHT)].tolist()) == ({3.5e-4} if split else set())


def test_the_host_waits_for_each_message_between_stages() -> None:
    """Layers a and b, then c and d; the first device runs F0 F1 B0 B1, the second F0 B0 F1 B1. Pauses before a pass:
    one for what it reads, one for what the pass before it sent."""
    profile, cluster, plan = pipeline("1f1b")
    for runtime, waits in ((PAUSED, True), (LAUNCHED, False)):
        graph = lower(ShardedModel(profile, plan), cluster, replace(runtime, step_overhead_s=0.0))
        own = {Kind.FORWARD: 4e-4, Kind.BACKWARD: 7e-4}
        paused = {
            (Kind(graph.kind[t]), graph.layer_names[graph.layer[t]], int(graph.microbatch[t])): round(
                (graph.launch_s[t] - own[Kind(graph.kind[t])]) / 5e-3
            )
            for t in np.flatnonzero(graph.host_waits)
        }
        first = {(Kind.FORWARD, "a", 1): 1, (Kind.BACKWARD, "b", 0): 2, (Kind.BACKWARD, "b", 1): 1}
        second = {(Kind.FORWARD, "c", 0): 1, (Kind.FORWARD, "c", 1): 2}
        assert paused == ({**first, **second} if waits else {})


@pytest.mark.parametrize("exchange", ["messages", "collectives", "scattered"])
def test_the_host_does_not_wait_for_ranks_of_its_own_stage(exchange: str) -> None:
    """Tensor parallelism of 2 in 2 stages: of each device's two passes one reads the other stage.

    Layers b and c are whole on both ranks: scattered, each rank receives half and gathers the rest from the other.
    """
    profile, cluster = chain([3.0, 2.0, 4.0, 1.0]), switched([1.0] * 4)
    plan = planned("megatron", profile, cluster, batch_size=8, microbatches=1, tensor=2, pipeline=2)
    copies = {name: Sharding(copy=2, devices=devices) for name, devices in (("b", (0, 1)), ("c", (2, 3)))}
    plan = replace(plan, exchange=exchange, placements={**plan.placements, **copies})
    graph = lower(ShardedModel(profile, plan), cluster, replace(PAUSED, step_overhead_s=0.0))
    waits = np.flatnonzero(graph.host_waits)
    assert len(plan.devices) == 4 and sorted(graph.device[waits].tolist()) == [0, 1, 2, 3]
    first = set(graph.device[graph.layer == 0].tolist()) - {-1}
    assert {(int(graph.device[t]) in first, Kind(graph.kind[t])) for t in waits} == {
        (True, Kind.BACKWARD),
        (False, Kind.FORWARD),
    }


@pytest.mark.parametrize("per_host, distant", [(4, 1.0), (2, 4 / 3)])
def test_all_members_check_a_collective_before_its_reader(per_host: int, distant: float) -> None:
    """Two sums of four replicas, before the update of each."""
    profile, cluster = pipeline("1f1b")[0], two_tier(4, per_host, WIRE, replace(WIRE, tier="inter"))
    plan = planned("data", profile, cluster, batch_size=8)
    plan = replace(plan, synchronisation=replace(plan.synchronisation, bucket_bytes=profile.parameter_bytes // 2))
    graph = lower(ShardedModel(profile, plan), cluster, Runtime(collective_check_s=1e-3))
    assert np.count_nonzero(graph.kind == Kind.SYNCHRONISATION) == 2
    assert graph.launch_s[graph.kind == Kind.UPDATE] == pytest.approx([2 * 4e-3 * distant] * 4)
    assert not graph.launch_s[graph.kind != Kind.UPDATE].any()


def test_a_pipeline_whose_host_waits_by_hand() -> None:
    """Two layers of 1 s forward and 2 s backward on two devices; launches of 3 s, ahead, or after a message came and a
    pause of half a second: two before the first device's backward pass, as its forward pass sent a message, too."""
    profile, cluster = chain([3.0, 3.0]), switched([1.0, 1.0], bandwidth_bytes_per_s=1e30)
    plan = planned("pipeline", profile, cluster, batch_size=8, microbatches=1, judged=False)
    runtime = Runtime(forward_launch_s=3.0, backward_launch_s=3.0)
    for pause_s, ends in ((0.0, [4.0, 5.0, 10.0, 8.0]), (0.5, [4.0, 8.5, 18.5, 12.5])):
        done = run(profile, cluster, plan, runtime=replace(runtime, message_pause_s=pause_s))
        order = [*of_kind(done.graph, Kind.FORWARD), *of_kind(done.graph, Kind.BACKWARD)]
        assert done.timeline.end_s[order].tolist() == pytest.approx(ends)
        idle = [device.bubble_s + device.exposed_communication_s for device in done.report.devices]
        assert [device.compute_s for device in done.report.devices] == [3.0, 3.0]
        launch = [device.launch_s for device in done.report.devices]
        assert launch == pytest.approx([7.0, 5.5] if pause_s else [3.0, 1.0])
        assert idle == pytest.approx([ends[2] - 3.0 - late for late in launch])


def test_launches_that_bind_a_step_are_its_bottleneck() -> None:
    profile, cluster = chain([0.3, 0.3]), switched([1.0])
    plan = planned("data", profile, cluster, batch_size=8)
    done = run(profile, cluster, plan, runtime=Runtime(forward_launch_s=1.0, backward_launch_s=1.0))
    assert done.report.step_s == pytest.approx(4.2)
    assert done.report.critical_path_s == pytest.approx(0.6)
    assert done.report.path_s == pytest.approx({"host launches d0": 3.6, "compute d0": 0.6})
    assert str(done.report.bottleneck) == "host launches (86% of the step, mostly d0)"
    evidence = find_bottleneck(done.graph, cluster, done.timeline, lambda _: done.report.step_s)
    assert str(evidence).startswith("host of d0 is busy 95% of the step and on the critical path for 86%; devices")


def test_commands_tell_launches_where_there_are_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine, network = str(tmp_path / "machine.yaml"), str(tmp_path / "chain.json")
    files.write_profile(chain([1.0, 1.0]), Path(network))
    for runtime, tells in ((LAUNCHED, True), (IDEAL, False)):
        write_cluster(switched([1.0]), Path(machine), runtime)
        assert read_runtime(machine) == runtime
        assert cli.main(["simulate", network, "--cluster", machine, "--strategy", "data"]) == 0
        assert ("launches" in capsys.readouterr().out) == tells
