"""An error without the machine's drift: what slower or faster devices did to a run is not counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import planned
from small_networks import chain

from simulator import files
from simulator.cluster import Cluster
from simulator.network.catalogue import write_cluster
from simulator.run import run
from simulator.runtime import IDEAL
from traces.results.executions import Execution, write_execution
from traces.results.run_speed import error_at_run_speed, run_speeds
from traces.results.validation_cases import Case, LabNetwork, with_habits_of, with_speeds
from traces.results.validations import Overhead, plan_path, timeline_path

CASE = Case(model="small", network=LabNetwork(ranks=2, mbit=1000), strategy="pipeline", via="execute", batch_size=8)
PROFILE = chain([1.0, 2.0, 1.0])
CLUSTER = CASE.network.cluster([0, 1])
PLAN = planned("pipeline", PROFILE, CLUSTER, batch_size=8, microbatches=2)
SPEEDS = st.floats(0.3, 3.0)


def folder_of_run(folder: Path, machine: Cluster, task_overhead_s: float = 0.0) -> Path:
    """What a validation keeps of one run that happened on `machine` instead of on CLUSTER."""
    runtime = replace(with_habits_of(CASE.via, IDEAL), task_overhead_s=task_overhead_s)
    for part in ("profiles", "clusters", "overheads", "plans", "timelines"):
        (folder / part).mkdir(exist_ok=True)
    files.write_profile(PROFILE, folder / "profiles" / "small.json")
    write_cluster(CLUSTER, folder / "clusters" / f"{CASE.network.name}.yaml")
    overhead = Overhead(task_overhead_s=task_overhead_s, pass_overhead_s=0.0)
    (folder / "overheads" / "small.json").write_text(files.to_json(overhead))
    files.write_plan(PLAN, plan_path(folder, CASE))
    actual = run(PROFILE, machine, PLAN, runtime=runtime)
    sent = np.zeros(len(actual.graph))
    execution = Execution(steps_s=(actual.timeline.step_s,), losses=(1.0,), sent_bytes=sent, timeline=actual.timeline)
    write_execution(execution, timeline_path(folder, CASE))
    return folder


@given(first=SPEEDS, second=SPEEDS, task_overhead_s=st.sampled_from((0.0, 0.5)))
def test_devices_of_any_speed_leave_no_error(
    tmp_path_factory: pytest.TempPathFactory, first: float, second: float, task_overhead_s: float
) -> None:
    machine = with_speeds(CLUSTER, [first, second])
    folder = folder_of_run(tmp_path_factory.mktemp("run"), machine, task_overhead_s)
    assert error_at_run_speed(folder, CASE) == pytest.approx(0.0, abs=1e-9)


def test_what_the_network_did_stays(tmp_path: Path) -> None:
    slower = LabNetwork(ranks=2, mbit=1).cluster([0, 1])
    machine = with_speeds(slower, [0.5, 2.0])
    folder = folder_of_run(tmp_path, machine)
    same_speed = run(PROFILE, with_speeds(CLUSTER, [0.5, 2.0]), PLAN, runtime=with_habits_of(CASE.via, IDEAL))
    actual = run(PROFILE, machine, PLAN, runtime=with_habits_of(CASE.via, IDEAL))
    expected = same_speed.timeline.step_s / actual.timeline.step_s - 1
    assert expected < -1e-6
    assert error_at_run_speed(folder, CASE) == pytest.approx(expected, rel=1e-6)


def test_a_device_that_computes_nothing_keeps_its_speed() -> None:
    predicted = run(PROFILE, CLUSTER, PLAN)
    speeds = run_speeds(predicted.graph, predicted.timeline, predicted.timeline, 3)
    assert speeds.tolist() == [1.0, 1.0, 1.0]


def test_without_a_timeline_nothing_is_known(tmp_path: Path) -> None:
    assert error_at_run_speed(tmp_path, CASE) is None
