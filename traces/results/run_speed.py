"""A prediction with each device as fast as it was in the run: what is left of an error without that of layers' times.

A shared machine computes the same layers at half or twice its speed a minute later. Where a run was watched task by
task, the layers' seconds say how fast each device was; the plan is simulated once more with devices of these speeds.
What it is then off by is due to communication, to what runtimes add and to the simulator's rules. It uses the run, so
it explains an error and predicts nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from simulator import files
from simulator.run import expected_interval
from simulator.run import run as simulate
from simulator.taskgraph import Floats, Kind, TaskGraph
from simulator.timeline import Timeline
from traces.results.executions import read_execution
from traces.results.validation_cases import Case, with_speeds
from traces.results.validations import plan_path, prediction_inputs, timeline_path

COMPUTE = (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE)


def error_at_run_speed(folder: Path, case: Case) -> float | None:
    """Signed relative error of the step predicted with devices as fast as in the watched steps of the case's last run.

    None where the folder has no timeline of it. Raises InputError where plan and timeline are not of each other.
    """
    if not timeline_path(folder, case).exists():
        return None
    profile, cluster, runtime = prediction_inputs(folder, case)
    plan, actual = files.read_plan(plan_path(folder, case)), read_execution(timeline_path(folder, case)).timeline
    layers_alone = replace(runtime, pass_overhead_s=0.0, task_overhead_s=0.0)
    layers = simulate(profile, cluster, plan, runtime=layers_alone)
    within_s = runtime.task_overhead_s if case.via == "execute" else 0.0
    speeds = run_speeds(layers.graph, layers.timeline, actual, len(cluster.devices), within_s)
    as_fast = with_speeds(cluster, speeds.tolist())
    report = simulate(profile, as_fast, plan, runtime=runtime).report
    return expected_interval(report, profile, as_fast, plan, runtime).middle_s / actual.step_s - 1


def run_speeds(
    graph: TaskGraph, predicted: Timeline, actual: Timeline, devices: int, overhead_s: float = 0.0
) -> Floats:
    """How many times faster than predicted each device computed; (devices,), 1 where it computed nothing.

    overhead_s: seconds of each actual task that are no layer's. A task of the executor lasts from the assembly of its
    inputs, so what it adds is within; torch's runtimes are watched by the calls of their layers, and it lies between.
    """
    compute = np.isin(graph.kind, [int(kind) for kind in COMPUTE])
    expected_s, actual_s = (
        np.bincount(graph.device[compute], (each.end_s - each.start_s)[compute], minlength=devices)[:devices]
        for each in (predicted, actual)
    )
    actual_s = actual_s - overhead_s * np.bincount(graph.device[compute], minlength=devices)[:devices]
    speeds = np.ones(devices)
    np.divide(expected_s, actual_s, out=speeds, where=(expected_s > 0) & (actual_s > 0))
    return speeds
