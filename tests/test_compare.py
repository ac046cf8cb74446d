"""Which task was wrong, and what it held up."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from plans import planned
from small_networks import chain, switched

from simulator.errors import InputError
from simulator.run import Run, run
from simulator.taskgraph import Kind
from simulator.timeline import Timeline
from traces.results.timeline_comparison import compare


def two_stages() -> Run:
    """forward a 1 s | 0.512 us on the wire | forward b 1 s, backward b 2 s | 0.512 us | backward a 2 s."""
    profile, cluster = chain([3.0, 3.0]), switched([1.0, 1.0])
    return run(profile, cluster, planned("model", profile, cluster, judged=False, batch_size=8))


def lengthened(done: Run, kind: Kind, layer: int, seconds: float) -> tuple[Timeline, int]:
    """The run with one task longer, and all that starts when it ends, or later, moved on."""
    task = int(np.flatnonzero((done.graph.kind == kind) & (done.graph.layer == layer))[0])
    start, end = done.timeline.start_s, done.timeline.end_s
    after = start >= end[task] - 1e-12
    ends = end + seconds * after
    ends[task] += seconds
    return Timeline(start_s=start + seconds * after, end_s=ends), task


def test_the_same_timeline_differs_in_nothing() -> None:
    done = two_stages()
    comparison = compare(done.graph, done.timeline, done.timeline)
    assert comparison.error == 0 and not comparison.longest(5) and not comparison.latest(5)
    assert comparison.waits_s == pytest.approx(0)


def test_the_path_is_the_whole_of_a_chain() -> None:
    """Every task of two stages with one micro-batch waits for the one before."""
    done = two_stages()
    comparison = compare(done.graph, done.timeline, done.timeline)
    kinds = [Kind(done.graph.kind[task]) for task in comparison.path]
    passes = [Kind.FORWARD, Kind.ACTIVATION, Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT, Kind.BACKWARD]
    assert kinds[:6] == passes


def test_a_longer_task_is_found_and_what_follows_is_late_because_of_it() -> None:
    done = two_stages()
    actual, task = lengthened(done, Kind.FORWARD, 1, 0.5)
    comparison = compare(done.graph, done.timeline, actual)
    (worst,) = comparison.longest(3)
    assert (worst.task, worst.actual_s - worst.predicted_s) == (task, pytest.approx(0.5)) and worst.late_s == 0
    assert comparison.error == pytest.approx(done.timeline.step_s / (done.timeline.step_s + 0.5) - 1)
    backward = int(np.flatnonzero((done.graph.kind == Kind.BACKWARD) & (done.graph.layer == 1))[0])
    assert comparison.difference(backward).late_s == pytest.approx(0.5)
    assert comparison.difference(backward).cause == task
    assert comparison.totals()[Kind.FORWARD].actual_s - comparison.totals()[Kind.FORWARD].predicted_s == pytest.approx(
        0.5
    )
    assert not comparison.latest(5)  # nothing starts later than what it waits for explains


def test_a_wait_without_a_cause_is_found() -> None:
    """The backward pass of the second stage hesitates for 0.25 s."""
    done = two_stages()
    actual, task = lengthened(done, Kind.FORWARD, 1, 0.25)
    ends = actual.end_s.copy()
    ends[task] -= 0.25
    comparison = compare(done.graph, done.timeline, replace(actual, end_s=ends))
    (late,) = comparison.latest(3)
    assert done.graph.kind[late.task] == Kind.BACKWARD and late.cause == task
    assert late.late_s == pytest.approx(0.25) and comparison.waits_s == pytest.approx(0.25)
    assert not comparison.longest(3)


def test_a_device_busy_with_something_else_is_a_cause() -> None:
    """Two micro-batches of one layer: the second waits for the first although it does not depend on it."""
    profile, cluster = chain([3.0]), switched([1.0])
    done = run(profile, cluster, planned("data", profile, cluster, batch_size=8, microbatches=2))
    comparison = compare(done.graph, done.timeline, done.timeline)
    first, second = (
        int(np.flatnonzero((done.graph.kind == Kind.FORWARD) & (done.graph.microbatch == m))[0]) for m in (0, 1)
    )
    assert not len(done.graph.predecessors(second)) and comparison.causes[first] == -1
    assert done.graph.device[comparison.causes[second]] == 0 and comparison.causes[second] >= 0


def test_a_timeline_of_another_plan_is_refused() -> None:
    done = two_stages()
    short = Timeline(start_s=done.timeline.start_s[1:], end_s=done.timeline.end_s[1:])
    count = len(done.graph)
    with pytest.raises(InputError, match=re.escape(f"actual timeline is of {count - 1} tasks: the plan has {count}")):
        compare(done.graph, done.timeline, short)
