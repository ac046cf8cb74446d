"""The compiled engine against the reference engine: start and end of every task bit for bit, every feature on."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import replace

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from small_networks import chain

from simulator.cluster import Cluster, Device, Link
from simulator.collectives.ring import around
from simulator.curve import Curve
from simulator.engine import binding_tasks, engine_name, longest_chain_s, simulate
from simulator.errors import InputError, StuckError, UnknownNameError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Kind, Route, TaskGraph

CASES = laws.examples(120, 3000)
both_engines = pytest.mark.skipif(engine_name() != "compiled", reason="no compiled engine: no C compiler here")

SECONDS = st.sampled_from((0.0, 0.0, 1e-4, 1e-3, 1e-3, 0.3e-3)) | st.floats(0.0, 2e-3, allow_subnormal=False)
BYTES = st.sampled_from((0.0, 100.0, 100.0, 1e3, 330.0)) | st.floats(0.0, 1e4, allow_subnormal=False)
CURVE = Curve(points=((10.0, 1e-4), (1000.0, 8e-4)))


@st.composite
def runtimes(draw: st.DrawFn) -> Runtime:
    """Each habit that the engine knows of, or not."""
    return Runtime(
        name="random",
        overlap_slowdown=draw(st.sampled_from((1.0, 1.0, 1.5, 2.0, 1.1))),
        send_cpu_s_per_byte=draw(st.sampled_from((0.0, 0.0, 1e-6, 3e-7))),
        receive_cpu_s_per_byte=draw(st.sampled_from((0.0, 0.0, 1e-6, 2e-5))),
        busy_latency_s=draw(st.sampled_from((0.0, 0.0, 2.5e-4, 1e-3))),
        forward_launch_s=draw(st.sampled_from((0.0, 0.0, 3e-4, 1e-3))),
        backward_launch_s=draw(st.sampled_from((0.0, 0.0, 7e-4))),
        update_launch_s=draw(st.sampled_from((0.0, 1e-4))),
        step_overhead_s=draw(st.sampled_from((0.0, 0.0, 1e-3))),
    )


@st.composite
def machines(draw: st.DrawFn) -> Cluster:
    """Random clusters with hosts of few or of enough cores, and with links that were measured."""
    cluster = draw(clusters())
    hosts = sorted({device.host for device in cluster.devices})
    cores = {host: draw(st.sampled_from((0.5, 1.0, 2.0))) for host in hosts if draw(st.integers(0, 2))}
    measured = draw(st.integers(0, 7))
    links = tuple(replace(x, curve=CURVE) if i % 8 == measured else x for i, x in enumerate(cluster.links))
    return replace(cluster, host_cores=cores, links=links)


@st.composite
def graphs(draw: st.DrawFn, cluster: Cluster) -> TaskGraph:
    """Up to 40 tasks: compute, launched or not, messages, collectives on several routes, receivers' words, measured
    transfers."""
    devices = st.integers(0, len(cluster.devices) - 1)
    builder, meets, launched = GraphBuilder(), draw(st.booleans()), draw(st.booleans())
    kinds = [Kind.FORWARD, Kind.FORWARD, Kind.ACTIVATION, Kind.SYNCHRONISATION, *([Kind.READY] if meets else [])]
    for task in range(draw(st.integers(1, 40))):
        kind = draw(st.sampled_from(kinds))
        if kind == Kind.FORWARD:
            priority = draw(st.sampled_from((0, 0, 1, -1, 2**62, 2**62 + 1)))
            launches = {"launch_s": draw(SECONDS), "host_waits": draw(st.booleans())} if launched else {}
            builder.add(kind, 1, device=draw(devices), seconds=draw(SECONDS), priority=priority, **launches)
        else:
            count = draw(st.integers(1, 3)) if kind == Kind.SYNCHRONISATION else 1
            pairs = tuple((draw(devices), draw(devices)) for _ in range(count))
            route = builder.route(Route(pairs, draw(st.sampled_from((1, 1, 2, 6)))))
            seconds = draw(st.sampled_from((0.0, 0.0, 0.0, 0.0, 1e-3)))
            size = 0.0 if kind == Kind.READY else draw(BYTES)
            builder.add(kind, 1, device=pairs[0][1], route=route, seconds=seconds, bytes=size)
        for other in draw(st.lists(st.integers(max(0, task - 8), task - 1), max_size=3)) if task else ():
            builder.depend(task, other)
    return builder.build(np.zeros(len(cluster.devices)), ["layer"])


def outcome(graph: TaskGraph, cluster: Cluster, runtime: Runtime, engine: str) -> tuple[bytes, bytes] | str:
    """Start and end of every task as bytes, or why there are none."""
    try:
        timeline = simulate(graph, cluster, runtime, engine)
    except StuckError as error:
        return str(error)
    return timeline.start_s.tobytes(), timeline.end_s.tobytes()


def assert_agreement(graph: TaskGraph, cluster: Cluster, runtime: Runtime) -> None:
    assert outcome(graph, cluster, runtime, "compiled") == outcome(graph, cluster, runtime, "reference")


@both_engines
@settings(max_examples=CASES)
@given(st.data(), machines(), runtimes())
def test_random_graphs_run_alike(data: st.DataObject, cluster: Cluster, runtime: Runtime) -> None:
    assert_agreement(data.draw(graphs(cluster)), cluster, runtime)


@both_engines
@settings(max_examples=CASES // 3)
@given(st.data(), machines(), runtimes(), profiles())
def test_random_plans_run_alike(data: st.DataObject, cluster: Cluster, runtime: Runtime, profile: object) -> None:
    plan = data.draw(plans(profile, cluster))  # type: ignore[arg-type]
    assert_agreement(lower(ShardedModel(profile, plan), cluster, runtime), cluster, runtime)  # type: ignore[arg-type]


@both_engines
@settings(max_examples=20)
@given(st.integers(0, 2**32), runtimes())
def test_many_transfers_at_a_time_run_alike(seed: int, runtime: Runtime) -> None:
    """Sizes and starts are drawn, so that shares differ and classes hold several activities."""
    rng = np.random.default_rng(seed)
    cluster = switch(6, cores=2.0)
    count = 100
    sources, targets = rng.integers(0, 6, count), rng.integers(0, 6, count)
    builder = GraphBuilder()
    clocks = builder.add(Kind.FORWARD, count, device=sources, seconds=rng.uniform(0, 1e-4, count))
    routes = builder.message_routes(sources, targets)
    sent = builder.add(Kind.ACTIVATION, count, device=targets, route=routes, bytes=rng.uniform(0, 1e4, count))
    builder.depend(sent, clocks)
    assert_agreement(builder.build(np.zeros(6), ()), cluster, runtime)


@both_engines
@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from((1, 2)), st.booleans())
def test_a_crowd_runs_alike(seed: int, islands: int, equal: bool) -> None:
    """Everybody on an island sends to everybody, in chains, so that all classes are joined, come and go one by one."""
    rng = np.random.default_rng(seed)
    cluster = switch(8)
    bandwidths = np.full(16, 1e6) if equal else rng.choice([1e6, 2e6, 3.3e5], 16)
    links = zip(cluster.links, bandwidths.tolist(), strict=True)
    cluster = replace(cluster, links=tuple(replace(x, bandwidth_bytes_per_s=rate) for x, rate in links), host_cores={})
    grid = np.array([(a, b) for a in range(8) for b in range(8) if a != b and a % islands == b % islands])
    builder = GraphBuilder()
    routes = np.tile(builder.message_routes(grid[:, 0], grid[:, 1]), 4)
    sizes = rng.choice([0.0, 100.0, 1e3], len(routes)) + rng.uniform(0, 1e3, len(routes)) * rng.integers(0, 2)
    sent = builder.add(Kind.ACTIVATION, len(routes), device=np.tile(grid[:, 1], 4), route=routes, bytes=sizes)
    builder.depend(sent[len(grid) :], sent[: -len(grid)])
    assert_agreement(builder.build(np.zeros(8), ()), cluster, IDEAL)


@both_engines
@settings(max_examples=20)
@given(st.integers(0, 2**32), st.booleans())
def test_collectives_over_many_links_run_alike(seed: int, equal: bool) -> None:
    """Rings over up to 8 devices (16 links) share these with messages and with each other."""
    rng = np.random.default_rng(seed)
    cluster = switch(8)
    bandwidths = np.full(16, 1e6) if equal else rng.choice([1e6, 2e6, 3.3e5], 16)
    links = zip(cluster.links, bandwidths.tolist(), strict=True)
    cluster = replace(cluster, links=tuple(replace(x, bandwidth_bytes_per_s=rate) for x, rate in links), host_cores={})
    builder = GraphBuilder()
    for _ in range(40):
        members = rng.permutation(8)[: rng.integers(2, 9)].tolist()
        pairs = tuple(zip(members, members[1:] + members[:1], strict=True))[:: rng.choice([1, 8])]
        route = builder.route(Route(pairs, int(rng.integers(1, 3))))
        task = builder.add(Kind.SYNCHRONISATION, 1, device=members[0], route=route, bytes=rng.uniform(0, 1e4))
        if task[0] >= 8:
            builder.depend(task, task - rng.integers(1, 9))
    assert_agreement(builder.build(np.zeros(8), ()), cluster, IDEAL)


@both_engines
def test_links_of_another_speed_run_alike() -> None:
    """What is kept of a graph is not how fast its classes went on the cluster before: an all-reduce, and messages that
    links give less than to it."""
    cluster = read_cluster("p3-16xlarge", devices=16)
    builder = GraphBuilder()
    for route in (
        Route(around(tuple(range(16))), 30, collective="all-reduce"),
        *(Route(((i, i + 8),)) for i in range(8)),
    ):
        builder.add(Kind.SYNCHRONISATION, 1, route=builder.route(route), bytes=1e8)
    graph = builder.build(np.zeros(16), ())
    for gbps in (1, 10, 100, 3):
        assert_agreement(graph, cluster.with_tier("inter", bandwidth_bytes_per_s=gbps * 1e9 / 8), IDEAL)


def switch(count: int, cores: float = 1.0) -> Cluster:
    devices = tuple(Device(name=f"d{i}", host=f"h{i // 2}") for i in range(count))
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=1e6, latency_s=1e-5)
        for device in devices
        for a, b in ((device.name, "switch"), ("switch", device.name))
    )
    return Cluster(name="switch", devices=devices, links=links, host_cores={d.host: cores for d in devices})


def computing(**columns: object) -> TaskGraph:
    builder = GraphBuilder()
    builder.add(Kind.FORWARD, 2, device=[0, 1], **columns)  # type: ignore[arg-type]
    return builder.build(np.zeros(2), ())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_duration_out_of_range_is_refused(seconds: float, engine: str) -> None:
    with pytest.raises(InputError, match="seconds is"):
        simulate(computing(seconds=seconds), switch(2), IDEAL, engine)


@pytest.mark.parametrize("device", [-1, 2])
def test_a_device_that_is_not_there_is_refused(device: int, engine: str) -> None:
    graph = replace(computing(), device=np.array([0, device]))
    with pytest.raises(InputError, match="device is"):
        simulate(graph, switch(2), IDEAL, engine)


@pytest.mark.parametrize("dependencies", [[2], [-1]])
def test_a_dependency_that_is_not_there_is_refused(dependencies: list[int], engine: str) -> None:
    graph = replace(computing(), dependencies=np.array(dependencies), dependency_start=np.array([0, 1, 1]))
    with pytest.raises(InputError, match="dependencies is"):
        simulate(graph, switch(2), IDEAL, engine)


@pytest.mark.parametrize("start", [[0, 1], [0, 1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 1, 2], [0, 2, 1]])
def test_dependencies_that_are_no_rows_are_refused(start: list[int], engine: str) -> None:
    """Two tasks and one dependency: three numbers, from 0 to 1, none below the one before."""
    graph = replace(computing(), dependencies=np.array([0]), dependency_start=np.array(start))
    with pytest.raises(InputError, match="dependency_start"):
        simulate(graph, switch(2), IDEAL, engine)


def test_a_cycle_is_named(engine: str) -> None:
    graph = replace(computing(), dependencies=np.array([1, 0]), dependency_start=np.array([0, 1, 2]))
    with pytest.raises(
        StuckError, match=r"2 of 2 tasks are blocked.*forward on device 0 waits for forward on device 1"
    ):
        simulate(graph, switch(2), IDEAL, engine)


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'compiled'"):
        engine_name("compile")


def test_without_a_compiler_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.engine.is_available", lambda: False)
    monkeypatch.delenv("SHARDSCOPE_ENGINE", raising=False)
    assert engine_name() == "reference"
    with pytest.raises(InputError, match="install a C compiler"):
        engine_name("compiled")


@both_engines
def test_a_report_says_which_engine_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ("reference", "compiled"):
        monkeypatch.setenv("SHARDSCOPE_ENGINE", engine)
        plan = Plan(model="chain", batch_size=4, placements={"a": Sharding(devices=(0,))})
        assert run(chain([1.0]), switch(1), plan).report.to_dict()["engine"] == engine


@both_engines
@settings(max_examples=CASES)
@given(st.lists(SECONDS, max_size=12), st.randoms(use_true_random=False))
def test_the_longest_chain_is_the_same_in_any_order_of_tasks(seconds: list[float], drawn: random.Random) -> None:
    count = len(seconds)
    order = drawn.sample(range(count), count)
    pairs = [(order[i], order[drawn.randrange(i)]) for i in range(1, count) for _ in range(drawn.randrange(4))]
    builder = GraphBuilder()
    builder.add(Kind.FORWARD, count, device=0)
    builder.depend([later for later, _ in pairs], [earlier for _, earlier in pairs])
    graph = builder.build(np.zeros(1), ())
    ends: dict[int, float] = {}
    for task in order:
        ends[task] = max((ends[other] for other in graph.predecessors(task).tolist()), default=0.0) + seconds[task]
    for engine in ("compiled", "reference"):
        assert longest_chain_s(graph, np.array(seconds), engine) == max(ends.values(), default=0.0)


@both_engines
@settings(max_examples=CASES // 6)
@given(st.data(), machines())
def test_the_chain_that_binds_a_step_is_the_same(data: st.DataObject, cluster: Cluster) -> None:
    graph = data.draw(graphs(cluster))
    timeline = simulate(graph, cluster)
    before = np.array([data.draw(st.integers(-1, len(graph) - 1)) for _ in range(len(graph))])
    chains = [binding_tasks(graph, timeline, before, engine).tolist() for engine in ("compiled", "reference")]
    assert chains[0] == chains[1]


@both_engines
def test_an_interrupt_is_noticed_within_a_fifth_of_a_second() -> None:
    """64 x 63 messages at a time share a switch: one change touches thousands of classes."""
    cluster = switch(64)
    grid = np.array([(a, b) for a in range(64) for b in range(64) if a != b] * 50)
    builder = GraphBuilder()
    routes = builder.message_routes(grid[:, 0], grid[:, 1])
    rng = np.random.default_rng(1)
    builder.add(Kind.ACTIVATION, len(grid), device=grid[:, 1], route=routes, bytes=rng.uniform(1e5, 1e6, len(grid)))
    graph, after_s = builder.build(np.zeros(64), ()), 1.0
    simulate(computing(), switch(2), IDEAL, "compiled")
    previous = signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, after_s)  # of this process: others may keep the machine busy
    start = time.process_time()
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate(graph, cluster, IDEAL, "compiled")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    assert time.process_time() - start < after_s + 0.2
