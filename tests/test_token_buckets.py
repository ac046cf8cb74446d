"""Token buckets of links: depths out of measured curves, and transfers that find too few tokens, in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.engine import ENGINES, engine_name, simulate
from simulator.engine.columns import make_columns
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.token_buckets import Shaped, depths_bytes, shaped
from simulator.network.topologies import Wire, flat_switch
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats, Kind, Route, TaskGraph

RATE, DEPTH, LATENCY_S = 1e6, 5e4, 1e-3
SIZES = (1.0, 1e3, 1e4, 5e4, 1e5, 2e5, 4e5, 1e6)
AVAILABLE = [name for name in ENGINES if name == "reference" or engine_name() == "compiled"]


def shaped_pair(depth: float = DEPTH, rate: float = RATE, cores: float | None = None) -> Cluster:
    """Two devices joined by links with buckets, and on hosts of so many cores."""
    points = tuple((size, LATENCY_S + max(0.0, size - depth) / rate) for size in SIZES)
    cluster = flat_switch(2, Wire(bandwidth_bytes_per_s=rate, latency_s=LATENCY_S))
    links = tuple(replace(link, curve=Curve(points=points)) for link in cluster.links)
    hosts = {} if cores is None else {device.host: cores for device in cluster.devices}
    return replace(cluster, links=links, host_cores=hosts)


def messages(*sends: tuple[float, float, float | None], beside_s: float = 0.0) -> TaskGraph:
    """Messages (rest before, bytes, bytes ahead) from device 0 to 1, one after the other; what device 1 computes
    beside them."""
    builder, before = GraphBuilder(), None
    for rest_s, size, ahead in sends:
        rest = builder.add(Kind.FORWARD, 1, device=0, seconds=rest_s)
        if before is not None:
            builder.depend(rest, before)
        before = builder.add(
            Kind.ACTIVATION, 1, device=1, route=builder.route(Route(((0, 1),), ahead_bytes=ahead)), bytes=size
        )
        builder.depend(before, rest)
    builder.add(Kind.FORWARD, 1, device=1, seconds=beside_s)
    return builder.build(np.zeros(2), ["layer"])


def lasted_s(graph: TaskGraph, cluster: Cluster, engine: str, runtime: Runtime = IDEAL) -> list[float]:
    timeline = simulate(graph, cluster, runtime, engine)
    return (timeline.end_s - timeline.start_s)[graph.is_transfer].tolist()


@given(st.floats(2e3, 9e4), st.floats(1e5, 1e7))
def test_the_depth_of_a_bucket_is_where_the_curve_turns(depth: float, rate: float) -> None:
    assert depths_bytes(shaped_pair(depth, rate)) == pytest.approx(depth, rel=1e-3)


@given(st.floats(1e4, 1e9), st.floats(1e-6, 1e-2))
def test_a_link_of_latency_and_bandwidth_has_no_bucket(rate: float, latency_s: float) -> None:
    cluster = flat_switch(2, Wire(bandwidth_bytes_per_s=rate, latency_s=latency_s))
    assert not depths_bytes(cluster).any()
    curve = Curve(points=tuple((size, latency_s + size / rate) for size in SIZES))
    assert not depths_bytes(replace(cluster, links=tuple(replace(x, curve=curve) for x in cluster.links))).any()


@pytest.mark.parametrize("engine", AVAILABLE)
def test_a_transfer_waits_for_the_tokens_that_the_one_before_took(engine: str) -> None:
    """The first takes all; while it lasts its latency 1,000 come back, so that the next waits for 49,000."""
    cluster = shaped_pair()
    graph = messages((0.0, DEPTH, None), (0.0, DEPTH, None))
    assert lasted_s(graph, cluster, engine) == pytest.approx([LATENCY_S, LATENCY_S + 49e3 / RATE], rel=1e-6)
    rested = messages((0.0, DEPTH, None), (DEPTH / RATE, DEPTH, None))
    assert lasted_s(rested, cluster, engine) == pytest.approx([LATENCY_S, LATENCY_S], rel=1e-6)
    half = messages((0.0, DEPTH, None), (0.024, DEPTH, None))  # 1,000 and 24,000 have come back
    assert lasted_s(half, cluster, engine) == pytest.approx([LATENCY_S, LATENCY_S + 25e3 / RATE], rel=1e-6)


@pytest.mark.parametrize("engine", AVAILABLE)
def test_what_goes_ahead_in_a_batch_counts_once(engine: str) -> None:
    graph = messages((0.0, DEPTH, None), (0.0, DEPTH, DEPTH))
    first, second = lasted_s(graph, shaped_pair(), engine)
    assert (first, second) == pytest.approx((LATENCY_S, DEPTH / RATE), rel=1e-6)


@pytest.mark.parametrize("engine", AVAILABLE)
def test_only_bytes_without_a_token_take_core_time(engine: str) -> None:
    """Beside 4 messages within the bucket a device loses nothing; of 60,000 bytes 10,000 wait, 1 us each."""
    cluster, costly = shaped_pair(cores=1.0), Runtime(name="costly", receive_cpu_s_per_byte=1e-6)
    within = messages(*[(0.1, 1e4, None)] * 4, beside_s=1.0)
    ended_s = simulate(within, cluster, costly, engine).end_s[~within.is_transfer]
    assert ended_s[-1] == pytest.approx(1.0, abs=1e-5)
    beyond = messages((0.1, 6e4, None), beside_s=1.0)
    assert simulate(beyond, cluster, costly, engine).end_s[-1] == pytest.approx(1.01, abs=1e-5)


def test_paced_bytes_are_those_beyond_the_tokens() -> None:
    cluster, graph = shaped_pair(), messages((0.0, 2e4, None), (0.0, 6e4, None))
    timeline = simulate(graph, cluster)
    finds = shaped(graph, cluster, timeline.start_s, timeline.end_s)
    assert finds.paced_bytes[graph.is_transfer] == pytest.approx([1.0, 29e3], rel=1e-3)
    assert finds.later_s[graph.is_transfer] == pytest.approx([0.0, 19e3 / RATE], rel=1e-3)
    assert not finds.later_s[~graph.is_transfer].any()


@pytest.mark.parametrize(("changes", "looked", "last_s"), [(9, 3, 3e-3), (2, 3, 2e-3), (1, 2, 1e-3)])
def test_a_step_is_simulated_again_three_times_at_most_and_while_tokens_change(
    changes: int, looked: int, last_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round its only transfer lacks a millisecond more, but for the last rounds, which change nothing."""
    cluster, graph, seen_s = shaped_pair(), messages((0.0, DEPTH, None)), list[float]()

    def lacking(graph: TaskGraph, cluster: Cluster, start_s: Floats, end_s: Floats) -> Shaped:
        seen_s.append(float((end_s - start_s)[graph.is_transfer][0]))
        later_s = min(len(seen_s), changes) * 1e-3
        return replace(shaped(graph, cluster, start_s, end_s), later_s=np.where(graph.is_transfer, later_s, 0.0))

    monkeypatch.setattr("simulator.engine.shaped", lacking)
    (lasted,) = lasted_s(graph, cluster, "reference")
    before_s = [LATENCY_S + min(number, changes) * 1e-3 for number in range(looked)]
    assert seen_s == pytest.approx(before_s) and lasted == pytest.approx(LATENCY_S + last_s)


def test_what_computes_beside_transfers_does_no_more_where_these_lack_tokens() -> None:
    """Also where a route crosses no link, so that its rate has no bound."""
    cluster, runtime = shaped_pair(cores=1.0), Runtime(receive_cpu_s_per_byte=1e-6)
    graph = messages((0.5, DEPTH, None), beside_s=2.0)
    columns = make_columns(graph, cluster, runtime)
    computes = ~graph.is_transfer
    assert (columns.activity_class[computes] >= 0).any()
    lacks = Shaped(later_s=np.where(computes, 0.0, 1.0), paced_bytes=graph.bytes)
    after = columns.shaped(lacks, np.full(len(graph.routes), np.inf))
    assert after.work[computes].tolist() == columns.work[computes].tolist()
    assert after.delay_s[computes].tolist() == columns.delay_s[computes].tolist()
    paced = columns.shaped(lacks, np.full(len(graph.routes), 100.0))
    contends = graph.is_transfer & (columns.activity_class >= 0)
    assert contends.any() and (paced.work - columns.work)[contends].tolist() == [100.0] * int(contends.sum())
