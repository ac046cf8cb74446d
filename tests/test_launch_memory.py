"""Buffers of collectives that a host takes ahead of its device: closed forms, and the queue by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import switched

from simulator.engine import simulate
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.report.memory import BORDER, launched_s, peak_bytes, usage
from simulator.taskgraph import Kind, Route, TaskGraph

pytestmark = pytest.mark.usefixtures("engine")

SIZE = 1e6
MILLISECONDS = st.integers(0, 9).map(lambda count: count * 1e-3)


def gathers(launch_s: float, seconds: float, count: int, depth: int) -> TaskGraph:
    """On each of two devices `count` tasks in a row, each of which reads what a collective of its own has filled."""
    builder, before = GraphBuilder(), np.zeros(0, dtype=np.int64)
    for _ in range(count):
        gather = builder.add(Kind.ACTIVATION, 1, route=builder.route(Route(pairs=((0, 1), (1, 0)))), bytes=1.0)
        readers = builder.add(Kind.FORWARD, 2, device=[0, 1], launch_s=launch_s, seconds=seconds)
        builder.depend(readers, np.repeat(gather, 2))
        builder.allocate(np.repeat(gather, 2), [0, 1], [SIZE, SIZE])
        builder.allocate(readers, [0, 1], [-SIZE, -SIZE])
        builder.depend(np.repeat(gather, len(before)), before)
        before = readers
    return builder.build(np.zeros(2), (), depth)


@pytest.mark.parametrize(("depth", "held"), [(0, 1), (2, 3), (4, 5), (100, 8)])
def test_a_host_that_runs_ahead_keeps_the_buffers_of_all_that_it_has_launched(depth: int, held: int) -> None:
    cluster = switched((1.0, 1.0), bandwidth_bytes_per_s=1e15)
    graph = gathers(launch_s=1e-9, seconds=1.0, count=8, depth=depth)
    timeline = simulate(graph, cluster)
    assert peak_bytes(graph, timeline, cluster).tolist() == [held * SIZE, held * SIZE]
    assert usage(graph, timeline, cluster, 0)[1].max() == held * SIZE


def test_a_host_that_is_slower_than_its_device_keeps_one() -> None:
    cluster = switched((1.0, 1.0), bandwidth_bytes_per_s=1e15)
    graph = gathers(launch_s=1.0, seconds=1e-3, count=8, depth=100)
    assert peak_bytes(graph, simulate(graph, cluster), cluster).tolist() == [SIZE, SIZE]


def test_what_is_over_the_border_is_had_back() -> None:
    roomy = switched((1.0, 1.0), bandwidth_bytes_per_s=1e15)
    cluster = replace(roomy, devices=tuple(replace(each, memory_bytes=int(5 * SIZE)) for each in roomy.devices))
    graph = gathers(launch_s=1e-9, seconds=1.0, count=8, depth=100)
    timeline = simulate(graph, cluster)
    assert peak_bytes(graph, timeline, cluster).tolist() == pytest.approx([BORDER * 5 * SIZE] * 2)
    assert usage(graph, timeline, cluster, 1)[1].max() == pytest.approx(BORDER * 5 * SIZE)


def test_memory_is_taken_as_tasks_start_unless_a_depth_is_set() -> None:
    builder = GraphBuilder()
    builder.add(Kind.FORWARD, 1, device=0, seconds=1.0)
    assert [builder.build(np.zeros(1), (), *depth).launch_depth for depth in ((), (3,))] == [0, 3]


@given(st.lists(st.tuples(MILLISECONDS, MILLISECONDS, st.booleans()), min_size=1, max_size=12), st.integers(1, 13))
def test_a_task_is_launched_in_turn_after_what_its_host_waits_for(
    tasks: list[tuple[float, float, bool]], depth: int
) -> None:
    launches, seconds, waits = zip(*tasks, strict=True)
    builder = GraphBuilder()
    columns = {"device": 0, "launch_s": launches, "host_waits": np.array(waits), "seconds": seconds}
    row = builder.add(Kind.FORWARD, len(tasks), **columns)
    builder.depend(row[1:], row[:-1])
    graph = builder.build(np.zeros(1), (), depth)
    timeline = simulate(graph, switched((1.0,)))
    begins, host_s, expected = timeline.start_s.tolist(), 0.0, []
    for task, launch_s in enumerate(launches):
        if waits[task]:
            host_s = max(host_s, begins[task] - launch_s)
        if task >= depth:
            host_s = max(host_s, begins[task - depth])
        host_s += launch_s
        expected.append(min(host_s, begins[task]))
    assert launched_s(graph, timeline) == pytest.approx(expected, abs=1e-12)
