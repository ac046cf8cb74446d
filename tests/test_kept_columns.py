"""A graph simulated on one cluster after the other gives what each gives alone: what is kept with it is not stale."""

from __future__ import annotations

from dataclasses import fields, replace

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles

from simulator.cluster import Cluster, Device
from simulator.distinct import distinct
from simulator.engine import columns as columns_module
from simulator.engine import engine_name, simulate
from simulator.engine.columns import Columns, Ragged, make_columns
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.topologies import Wire, flat_switch
from simulator.report.metrics import measure
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Kind, Route, TaskGraph
from simulator.workload import Profile

RUNTIMES = st.sampled_from((IDEAL, Runtime(overlap_slowdown=1.5), Runtime(busy_latency_s=1e-4)))


def plain(columns: Columns) -> dict[str, object]:
    """The columns as lists."""
    values = {field.name: getattr(columns, field.name) for field in fields(Columns) if field.compare}
    lists = {name: value.lists() if isinstance(value, Ragged) else value for name, value in values.items()}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in lists.items()}


def lowered(
    data: st.DataObject, profile: Profile, cluster: Cluster, runtime: Runtime
) -> tuple[ShardedModel, TaskGraph | None]:
    """A plan that is drawn, and its graph; None where the runtime refuses it."""
    model = ShardedModel(profile, data.draw(plans(profile, cluster)))
    try:
        return model, lower(model, cluster, runtime)
    except InputError:
        return model, None


@settings(max_examples=laws.examples(15, 40))
@given(st.data(), profiles(max_layers=4), RUNTIMES, st.lists(st.sampled_from((0.25, 1.0, 3.0)), min_size=1, max_size=3))
def test_a_graph_on_several_clusters_is_that_of_each_alone(
    data: st.DataObject, profile: Profile, runtime: Runtime, factors: list[float]
) -> None:
    cluster = data.draw(clusters(min_workers=2))
    model, graph = lowered(data, profile, cluster, runtime)
    if graph is None:
        return
    ways = [cluster]
    for factor in factors:  # the links' speed, then their latency, then cores, which leave nothing as it was
        for tier in cluster.tiers:
            rate = factor * next(x.bandwidth_bytes_per_s for x in cluster.links if x.tier == tier)
            ways.append(ways[-1].with_tier(tier, bandwidth_bytes_per_s=rate))
            ways.append(ways[-1].with_tier(tier, latency_s=factor * 1e-4))
        ways.append(replace(ways[-1], host_cores={cluster.devices[0].host: 0.5 * factor}))
    for on in ways:
        alone = replace(graph)
        assert plain(make_columns(graph, on, runtime)) == plain(make_columns(alone, on, runtime))
        timelines = [simulate(each, on, runtime) for each in (graph, alone)]
        assert timelines[0].end_s.tolist() == timelines[1].end_s.tolist()
        reports = [
            measure(model, on, each, timeline, runtime)
            for each, timeline in zip((graph, alone), timelines, strict=True)
        ]
        assert repr(reports[0].to_dict()) == repr(reports[1].to_dict())


@pytest.mark.parametrize("engine", sorted({"reference", engine_name()}))
def test_priorities_keep_their_order_where_floats_round_them(engine: str) -> None:
    """Two that float64 cannot tell apart stay apart: tasks that are ready together run in their order."""
    builder, count, last = GraphBuilder(), 6, np.iinfo(np.int64).max
    builder.add(Kind.FORWARD, count, device=0, seconds=1.0)
    graph, cluster = builder.build(np.zeros(1), ()), Cluster(name="one", devices=(Device(name="d", host="h"),))
    for low, high in ((5, last), (2**53 - 1, last), (2**53, last), (2**53 + 1, 2**53 + 2), (-(2**60), 3)):
        priority = np.where(np.arange(count) % 2, low, high)
        timeline = simulate(replace(graph, priority=priority), cluster, engine=engine)
        assert timeline.start_s.tolist() == [3.0, 0.0, 4.0, 1.0, 5.0, 2.0]


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**62), 2**62), max_size=30))
def test_distinct_numbers_are_a_sorted_set(numbers: list[int]) -> None:
    assert distinct(np.array(numbers, dtype=np.int64)).tolist() == sorted(set(numbers))


@settings(max_examples=laws.examples(15, 40))
@given(st.data(), profiles(max_layers=4), RUNTIMES)
def test_equal_links_counted_once_take_as_long_as_each(data: st.DataObject, profile: Profile, runtime: Runtime) -> None:
    cluster = data.draw(clusters(min_workers=2))
    _, graph = lowered(data, profile, cluster, runtime)
    if graph is None:
        return
    once = simulate(graph, cluster, runtime)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_module, "_distinct_uses", lambda over, _: np.ones(len(over.link), dtype=np.bool_))
        each = simulate(replace(graph), cluster, runtime)
    assert once.start_s.tolist() == each.start_s.tolist() and once.end_s.tolist() == each.end_s.tolist()


def test_a_ring_of_equal_links_is_one_link_and_a_slow_one_is_another() -> None:
    builder = GraphBuilder()
    ring = builder.route(Route(pairs=tuple((i, (i + 1) % 8) for i in range(8))))
    builder.add(Kind.SYNCHRONISATION, 1, route=ring, bytes=8e9)
    graph = builder.build(np.zeros(8), [])
    equal = flat_switch(8, Wire(bandwidth_bytes_per_s=4e9))
    slow = replace(equal, links=(replace(equal.links[0], bandwidth_bytes_per_s=1e9), *equal.links[1:]))
    assert [len(make_columns(graph, on, IDEAL).resource) for on in (equal, slow)] == [1, 2]
    assert [simulate(graph, on, IDEAL).end_s.tolist() for on in (equal, slow)] == [[2.0], [8.0]]
