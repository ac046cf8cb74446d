"""Chrome traces: the trace-event format's rules, and every task of the timeline in its place."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
import small_networks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles

from simulator.cluster import Cluster
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.report import chrome_trace
from simulator.run import Run, run
from simulator.studies.scaling import replicated
from simulator.workload import Geometry, Profile

MB = 10**6


layer = partial(small_networks.layer, shape=(31_250, 1, 1), geometry=Geometry(), seconds=3e-3)
"""1 ms forward, 2 ms backward, 1 MB of output."""


@pytest.fixture
def cluster() -> Cluster:
    return flat_switch(3, Wire(bandwidth_bytes_per_s=1e9))


@pytest.fixture
def fan(cluster: Cluster) -> Run:
    """One layer on device 0 whose output two others read: two transfers leave device 0 at the same moment."""
    profile = Profile(model="fan", device="none", batch_size=1, layers=(layer("a"), layer("b", "a"), layer("c", "a")))
    places = {name: Sharding(devices=(i,)) for i, name in enumerate("abc")}
    return run(profile, cluster, Plan(model="fan", batch_size=1, placements=places))


def rows(trace: dict[str, Any], process: int) -> dict[int, str]:
    """Row names by thread number."""
    named = [e for e in trace["traceEvents"] if e["name"] == "thread_name" and e["pid"] == process]
    return {event["tid"]: event["args"]["name"] for event in named}


def spans(trace: dict[str, Any], process: int) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == process]


def check_format(trace: dict[str, Any]) -> None:
    """The rules of the trace-event format that Perfetto's reader relies on."""
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    last: dict[tuple[int, int], float] = {}
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for event in sorted(complete, key=lambda e: (e["ts"], e["ts"] + e["dur"])):
        row = event["pid"], event["tid"]
        assert row in named
        assert event["tid"] not in (0, event["pid"])  # readers take these for the idle and the main thread
        assert event["dur"] >= 0 <= event["ts"]
        assert isinstance(event["name"], str) and isinstance(event["cat"], str)
        # Spans of one row may touch, never overlap; a nanosecond is the format's grain.
        assert round(event["ts"] - last.get(row, 0.0), 3) >= 0
        last[row] = event["ts"] + event["dur"]
    assert {event["ph"] for event in trace["traceEvents"]} <= {"X", "M"}


def test_a_task_names_its_devices_where_their_names_are_known(fan: Run) -> None:
    names = [f"host0/gpu{i}" for i in range(3)]
    computing, sending = (int(np.argmax(fan.graph.is_transfer == sends)) for sends in (False, True))
    assert fan.graph.describe(computing).endswith(f" on device {fan.graph.device[computing]}")
    assert fan.graph.describe(computing, names).endswith(f" on host0/gpu{fan.graph.device[computing]}")
    source, target = fan.graph.routes[fan.graph.route[sending]].pairs[0]
    assert fan.graph.describe(sending).endswith(f" from device {source} to {target}")
    assert fan.graph.describe(sending, names).endswith(f" from host0/gpu{source} to host0/gpu{target}")


def test_processes_and_rows_are_named(fan: Run, cluster: Cluster) -> None:
    trace = chrome_trace.trace(fan.graph, cluster, fan.timeline)
    processes = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert processes == {chrome_trace.DEVICES: "devices", chrome_trace.LINKS: "links"}
    assert list(rows(trace, chrome_trace.DEVICES).values()) == ["host0", "host1", "host2"]
    assert set(rows(trace, chrome_trace.LINKS).values()) >= {link.name for link in cluster.links}


def test_transfers_that_share_a_link_have_rows_of_their_own(fan: Run, cluster: Cluster) -> None:
    trace = chrome_trace.trace(fan.graph, cluster, fan.timeline)
    check_format(trace)
    names = rows(trace, chrome_trace.LINKS)
    sent = [e for e in spans(trace, chrome_trace.LINKS) if e["cat"] == "activation"]
    assert sorted(names[e["tid"]] for e in sent) == [
        "host0->switch",
        "host0->switch (2)",
        "switch->host1",
        "switch->host2",
    ]
    # 1 MB each at half of 1 GB/s, after the forward pass of 1 ms.
    assert {(e["ts"], e["dur"]) for e in sent} == {(1000.0, 2000.0)}
    assert {e["args"]["bytes"] for e in sent} == {MB}


def test_compute_tasks_stand_on_their_device(fan: Run, cluster: Cluster) -> None:
    trace = chrome_trace.trace(fan.graph, cluster, fan.timeline)
    names = rows(trace, chrome_trace.DEVICES)
    placed = {
        (e["name"], names[e["tid"]]) for e in spans(trace, chrome_trace.DEVICES) if e["cat"] in ("forward", "backward")
    }
    assert placed == {
        (f"{what} {name}", f"host{i}") for i, name in enumerate("abc") for what in ("forward", "backward")
    }


def test_a_collective_is_on_every_link_it_crosses_once(cluster: Cluster) -> None:
    profile = Profile(model="one", device="none", batch_size=3, layers=(layer("a", parameter_bytes=3 * MB),))
    done = run(profile, cluster, replicated(profile, 3, 3, Synchronisation()))
    trace = chrome_trace.trace(done.graph, cluster, done.timeline)
    check_format(trace)
    synchronised = [e for e in spans(trace, chrome_trace.LINKS) if e["cat"] == "synchronisation"]
    names = rows(trace, chrome_trace.LINKS)
    assert sorted(names[e["tid"]] for e in synchronised) == sorted(link.name for link in cluster.links)
    assert {e["dur"] for e in synchronised} == {4000.0}  # 2 (N-1) / N x 3 MB at 1 GB/s


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_run_makes_a_valid_trace_with_every_task(data: st.DataObject) -> None:
    profile, cluster = data.draw(profiles()), data.draw(clusters(max_servers=1))
    done = run(profile, cluster, data.draw(plans(profile, cluster)))
    trace = chrome_trace.trace(done.graph, cluster, done.timeline)
    check_format(trace)
    computed = [event["args"]["task"] for event in spans(trace, chrome_trace.DEVICES)]
    assert sorted(computed) == [i for i in range(len(done.graph)) if not done.graph.is_transfer[i]]
    carried = {event["args"]["task"] for event in spans(trace, chrome_trace.LINKS)}
    assert carried == {i for i in range(len(done.graph)) if done.graph.is_transfer[i]}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=20))
def test_as_few_rows_as_spans_overlap(drawn: list[tuple[int, int]]) -> None:
    intervals = sorted((float(start), float(start + length)) for start, length in drawn if length)
    lanes = chrome_trace._lanes(intervals)
    deepest = max((sum(a <= t < b for a, b in intervals) for t in range(30)), default=0)
    assert len(set(lanes)) == deepest
    for i, (_, end) in enumerate(intervals):
        later = [j for j in range(i + 1, len(intervals)) if lanes[j] == lanes[i]]
        assert all(intervals[j][0] >= end for j in later)
