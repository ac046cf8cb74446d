"""Timelines of whole jobs: a written one of two stages becomes profile, plan and Timeline; wrong ones are refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.artefacts.bytedance import RecordedJob, read_job
from simulator.errors import InputError
from simulator.files import write_plan, write_profile
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.topologies import Wire, flat_switch
from simulator.taskgraph import Kind
from traces.results.executions import execution, write_execution

STAGES = 2
PASSES = (
    # stage, operation, micro-batch or number, first and last millisecond
    (0, "forward-compute", 0, 0, 10),
    (0, "forward-send", 0, 10, 12),
    (1, "forward-recv", 0, 10.5, 12.5),
    (1, "forward-compute", 0, 13, 33),
    (1, "backward-compute", 0, 33, 73),
    (1, "backward-send", 0, 73, 74),
    (0, "backward-recv", 0, 73, 75),
    (0, "backward-compute", 0, 75, 95),
    (0, "embedding-grads-all-reduce", 0, 95, 96),
    (0, "grads-reduce-scatter", 0, 97, 99),
    (1, "grads-reduce-scatter", 0, 75, 80),
    (0, "optimizer", 0, 99, 103),
    (1, "optimizer", 0, 80, 86),
)


def timeline(step: int = 7, origin_ms: float = 50.0) -> list[dict[str, Any]]:
    """A step of two replicas, alike."""
    events: list[dict[str, Any]] = []
    for replica in range(2):
        for stage in range(STAGES):
            name = {"name": f"PP rank {stage}, TP rank 0, compute"}
            events.append({"name": "thread_name", "ph": "M", "pid": replica, "tid": 10 * stage + replica, "args": name})
        for stage, operation, number, first, last in PASSES:
            compute = operation.endswith("-compute")
            about = {"step": step, "model_chunk": 0, "mb_id": number if compute else -1, "seq_id": number}
            span = {"ts": (origin_ms + first) * 1e3, "dur": (last - first) * 1e3}
            where = {"pid": replica, "tid": 10 * stage + replica}
            events.append({"name": operation, "cat": operation, "ph": "X", **where, **span, "args": about})
    return events[::-1]


def written(path: Path, events: Any) -> Path:
    path.write_text(json.dumps(events))
    return path


@pytest.fixture
def job(tmp_path: Path) -> RecordedJob:
    path = tmp_path / "job.json.gz"
    path.write_bytes(gzip.compress(json.dumps(timeline() + timeline(8, 500.0)).encode()))
    return read_job(path)


def test_a_written_job_is_read_as_profile_plan_and_steps(job: RecordedJob) -> None:
    assert (job.replicas, job.stages, job.microbatches, sorted(job.steps)) == (2, 2, 1, [7, 8])
    first, last = job.profile.layers
    assert (first.forward_s, first.backward_s, first.update_s) == pytest.approx((0.010, 0.020, 0.004))
    assert (last.forward_s, last.backward_s, last.update_s) == pytest.approx((0.020, 0.040, 0.006))
    assert job.plan.placements["stage1"].devices == (2, 3)
    assert (job.plan.schedule, job.plan.microbatches, job.plan.batch_size) == ("1f1b", 1, 2)
    assert job.step_s(7) == pytest.approx(0.103)


def test_the_plan_has_the_work_of_the_median_step(tmp_path: Path, job: RecordedJob) -> None:
    """Against the median over all samples: of two replicas of which one takes twice as long, 2/3 and 4/3."""
    assert job.plan.work == (1.0, 1.0) and job.profile.work_deviation == 0
    events = timeline()
    for event in events:
        if event["name"].endswith("-compute") and event["pid"] == 1:
            event["dur"] *= 2
    uneven = read_job(written(tmp_path / "uneven.json", events))
    assert uneven.plan.work == pytest.approx((2 / 3, 4 / 3), rel=1e-5)
    assert uneven.profile.work_deviation == pytest.approx(1 / 3, rel=1e-5)
    lowered = lower(ShardedModel(uneven.profile, uneven.plan), flat_switch(4, Wire(bandwidth_bytes_per_s=1e9)))
    seconds = {
        (int(lowered.layer[task]), int(lowered.shard[task])): float(lowered.seconds[task])
        for task in range(len(lowered))
        if lowered.kind[task] == Kind.FORWARD
    }
    assert seconds == pytest.approx({(0, 0): 0.010, (0, 1): 0.020, (1, 0): 0.020, (1, 1): 0.040}, rel=1e-5)


def test_a_recorded_step_is_a_timeline_of_the_plan(job: RecordedJob) -> None:
    graph = lower(ShardedModel(job.profile, job.plan), flat_switch(4, Wire(bandwidth_bytes_per_s=1e9)))
    actual = execution(graph, [job.step_s(7)], [[rank] for rank in job.observed(7)]).timeline
    spans: Mapping[tuple[int, int], tuple[float, float]] = {
        (int(graph.kind[task]), int(graph.layer[task])): (actual.start_s[task], actual.end_s[task])
        for task in range(len(graph))
    }
    assert spans[Kind.FORWARD, 1] == pytest.approx((0.013, 0.033))
    assert spans[Kind.ACTIVATION, 0] == pytest.approx((0.0105, 0.0125))
    assert spans[Kind.GRADIENT, 0] == pytest.approx((0.073, 0.075))
    assert spans[Kind.SYNCHRONISATION, 0] == pytest.approx((0.095, 0.099))
    assert spans[Kind.SYNCHRONISATION, 1] == pytest.approx((0.075, 0.080))
    assert actual.step_s == pytest.approx(0.103)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ts", -1, "forward-compute has no ts and dur in microseconds"),
        ("dur", "long", "forward-compute has no ts and dur in microseconds"),
        ("pid", "first", "thread 0 has no name with its PP rank"),
        ("args", {"step": 7}, "mb_id is 'None': it is a whole number of at least 0"),
        ("args", {"step": -2, "mb_id": 0}, "step is '-2'"),
        ("name", "backward-compute", "not every step has every stage's forward-compute and backward-compute"),
    ],
)
def test_wrong_events_are_refused_in_one_line(tmp_path: Path, key: str, value: object, message: str) -> None:
    events = timeline()
    event = next(e for e in events if e["name"] == "forward-compute" and e["pid"] == 0 and e["tid"] == 0)
    event[key] = value
    with pytest.raises(InputError, match=message) as refused:
        read_job(written(tmp_path / "job.json", events))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"), [("[{", "not a whole JSON file"), ("{}", "is a list of events"), ("[]", "not every")]
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_job(path)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json.gz"
    path.write_bytes(gzip.compress(json.dumps(timeline()).encode())[:-40])
    with pytest.raises(InputError, match="not a whole JSON file"):
        read_job(path)


def test_the_dashboard_opens_a_job_beside_its_simulation(
    tmp_path: Path, job: RecordedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile, a plan and an execution of it go into the dashboard, which begins with the two compared."""
    import argparse

    from dashboard.state.store import Store, bundled
    from simulator.cli import dashboard, main

    profile, plan, run = (str(tmp_path / name) for name in ("st.json", "plan.json", "run.npz"))
    write_profile(job.profile, profile)
    write_plan(job.plan, plan)
    graph = lower(ShardedModel(job.profile, job.plan), flat_switch(4, Wire(bandwidth_bytes_per_s=1e9)))
    by_rank = list(zip(*(job.observed(step) for step in job.steps), strict=True))
    write_execution(execution(graph, [job.step_s(step) for step in job.steps], by_rank), run)
    parser = argparse.ArgumentParser()
    dashboard.add_arguments(parser)
    args = parser.parse_args([profile, "--plan", plan, "--execution", run, "--cluster", "p3-16xlarge"])
    store = Store(bundled(args.profiles))
    address, _, query = dashboard._first_page(store, args).partition("?")
    configuration, problems = store.read(query)
    assert (address, problems, configuration.devices) == ("/compare", [], 4)
    outcome, compared = store.actual(configuration, query.rpartition("against=")[2])
    assert compared is not None and outcome.run is not None
    assert outcome.run.report.step_s == pytest.approx(0.103)
    assert dashboard._first_page(store, parser.parse_args([])) == "/"
    assert main(["dashboard", profile, "--plan", plan]) == 2
    assert "--plan: it opens beside its execution" in capsys.readouterr().err
