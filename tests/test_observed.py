"""What ranks saw of a step becomes the timeline of its graph; torch's own runtimes, watched over loopback."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from plans import planned
from small_networks import chain, switched

from simulator import files
from simulator.errors import RunError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.topologies import Wire, flat_switch
from simulator.run import step_report
from simulator.runtime import IDEAL, TORCH_PIPELINING
from simulator.taskgraph import Kind, TaskGraph
from simulator.workload import Profile
from traces.results.executions import Execution, ObservedTask, execution
from traces.results.validation_cases import with_habits_of

pytestmark = pytest.mark.usefixtures("forked_python")

F, B, A, G = Kind.FORWARD, Kind.BACKWARD, Kind.ACTIVATION, Kind.GRADIENT


def two_stages() -> TaskGraph:
    profile, cluster = chain([3.0, 3.0]), switched([1.0, 1.0])
    return lower(ShardedModel(profile, planned("model", profile, cluster, judged=False, batch_size=8)), cluster)


def both_ranks() -> list[list[ObservedTask]]:
    """forward of the first layer 1 s | on the wire 0.5 s, asked for early | second layer 1 s, 2 s | back | 2 s."""
    first, second = (layer.name for layer in chain([3.0, 3.0]).layers)
    return [
        [
            ObservedTask(F, first, 0, 0, 0, 0.0, 1.0), ObservedTask(A, first, 0, 0, 1, 1.0, nan, 64.0),
            ObservedTask(G, first, 0, 1, 0, 1.1, nan),
            ObservedTask(G, first, 0, 1, 0, nan, 5.0),
            ObservedTask(B, first, 0, 0, 0, 5.0, 7.0),
        ],
        [
            ObservedTask(A, first, 0, 0, 1, 0.2, nan),
            ObservedTask(A, first, 0, 0, 1, nan, 1.5),
            ObservedTask(F, second, 0, 1, 1, 1.5, 2.5),
            ObservedTask(B, second, 0, 1, 1, 2.5, 4.5),
            ObservedTask(G, first, 0, 1, 0, 4.5, nan, 64.0),
        ],
    ]  # fmt: skip


def test_a_task_begins_for_the_last_that_sees_it_begin() -> None:
    graph = two_stages()
    executed = execution(graph, [7.5], [[rank] for rank in both_ranks()])
    spans = zip(executed.timeline.start_s.tolist(), executed.timeline.end_s.tolist(), strict=True)
    assert dict(zip(zip(graph.kind.tolist(), graph.layer.tolist(), strict=True), spans, strict=True)) == {
        (F, 0): (0.0, 1.0), (A, 0): (1.0, 1.5), (F, 1): (1.5, 2.5), (B, 1): (2.5, 4.5),
            (G, 0): (4.5, 5.0),
        (B, 0): (5.0, 7.0),
    }  # fmt: skip
    assert executed.sent_bytes[graph.is_transfer].tolist() == [64.0, 64.0]


def test_what_nobody_saw_takes_no_time_after_what_it_waits_for() -> None:
    graph = two_stages()
    ranks = [[[seen for seen in rank if (seen.kind, seen.source) != (B, 1)]] for rank in both_ranks()]
    timeline = execution(graph, [7.5], ranks).timeline
    (task,) = np.flatnonzero((graph.kind == B) & (graph.layer == 1))
    assert timeline.start_s[task] == timeline.end_s[task] == 2.5


def test_the_timeline_is_that_of_the_median_step() -> None:
    slow, slowest = (
        [[seen._replace(start_s=f * seen.start_s, end_s=f * seen.end_s) for seen in rank] for rank in both_ranks()]
        for f in (2, 4)
    )
    executed = execution(
        two_stages(), [1.0, 2.0], [list(steps) for steps in zip(slowest, both_ranks(), slow, strict=True)]
    )
    assert executed.timeline.step_s == 14.0 and executed.steps_s == (1.0, 2.0)


def test_ranks_that_ran_something_else_are_found_out() -> None:
    ranks = [[rank] for rank in both_ranks()]
    ranks[0][0] = [*ranks[0][0], ObservedTask(F, "elsewhere", 0, 0, 0, 0.0, 1.0)]
    with pytest.raises(RunError, match="ranks ran forward of 'elsewhere', which the plan does not have"):
        execution(two_stages(), [7.5], ranks)


def watched(strategy: str, ranks: int, profile: Profile) -> tuple[TaskGraph, Execution]:
    """A real step over loopback by a runtime of torch's."""
    pytest.importorskip("torch", reason="torch is not installed; make test installs it")
    from traces.runs.torch_runtimes.ddp import run_ddp
    from traces.runs.torch_runtimes.pipelining import run_pipeline

    cluster = flat_switch(ranks, Wire(bandwidth_bytes_per_s=1e9))
    runtime = IDEAL if strategy == "data" else TORCH_PIPELINING
    if strategy == "data":
        plan = planned("data", profile, cluster, batch_size=8)
        run = run_ddp
    else:
        plan = planned("pipeline", profile, cluster, judged=False, batch_size=8, microbatches=4, schedule=strategy)
        run = run_pipeline
    graph = lower(ShardedModel(profile, plan), cluster, runtime)
    return graph, run(profile, cluster, plan, steps=2, timeout_s=60).execution


@pytest.mark.parametrize("strategy", ["data", "zero-bubble"])
def test_torchs_runtimes_run_the_tasks_of_the_graph(strategy: str) -> None:
    """Tasks run after what they depend on, but torch makes the weights' gradients of a pass from the first layer on."""
    graph, executed = watched(strategy, 2, files.read_profile("vgg_small"))
    start_s, end_s = executed.timeline.start_s, executed.timeline.end_s
    later = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_start))
    free = graph.is_transfer[graph.dependencies] | (graph.kind[later] == graph.kind[graph.dependencies])
    assert (start_s[later] >= end_s[graph.dependencies] - 1e-3)[~free].all()
    busy_s = (end_s - start_s)[(graph.device == 0) & ~graph.is_transfer]
    assert (busy_s > 0).mean() > 0.6 and 0 < busy_s.sum() < executed.timeline.step_s
    assert (end_s > start_s)[graph.bytes > 0].all()
    assert executed.sent_bytes.sum() == pytest.approx(graph.bytes[graph.is_transfer].sum())


@pytest.mark.parametrize("strategy", ["data", "gpipe"])
def test_layers_that_are_not_trained_have_no_update(strategy: str) -> None:
    """Nor, of a pipeline, has the device that has no others."""
    pytest.importorskip("torch", reason="torch is not installed; make test installs it")
    from tiny_networks import FROZEN, profile_of

    profile = replace(profile_of(FROZEN, 8, "float32"), model="tiny_networks:FROZEN")
    graph, executed = watched(strategy, 2, profile)
    updated = graph.device[graph.kind == Kind.UPDATE].tolist()
    assert updated == ([0, 1] if strategy == "data" else [1])
    assert executed.timeline.step_s > 0


def test_a_captured_network_takes_the_memory_that_it_is_said_to_take() -> None:
    """To a thousandth of what DistributedDataParallel holds at its peak; the rest is numbers such as the loss."""
    pytest.importorskip("torch", reason="torch is not installed; make test installs it")
    from traces.capture.command import capture
    from traces.runs.torch_runtimes.ddp import run_ddp

    profile = capture("vgg_digits", 16, repeats=1, warmup=0, fractions=())
    cluster = flat_switch(2, Wire(bandwidth_bytes_per_s=1e9))
    plan = planned("data", profile, cluster, batch_size=32)
    report = step_report(profile, cluster, plan, runtime=with_habits_of("ddp", IDEAL))
    (peak_bytes,) = {device.peak_memory_bytes for device in report.devices}
    assert run_ddp(profile, cluster, plan, steps=1, timeout_s=60).peak_bytes == pytest.approx(
        [peak_bytes] * 2, rel=1e-3
    )
