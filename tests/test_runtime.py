"""A runtime measured on a cluster is used wherever the cluster's file is: commands, sweeps, dashboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_networks import chain, switched

from dashboard.state import uploads
from dashboard.state.store import Store
from simulator import cli, files
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.runtime import IDEAL, Runtime
from simulator.sweep.evaluate import SweepContext, evaluate
from simulator.sweep.inputs import load_inputs
from simulator.sweep.points import Point

SLOW = Runtime(name="slow", task_overhead_s=0.5)
TASKS = 6
"""Of one device: three layers without parameters, forward and backward."""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "machine.yaml"
    write_cluster(switched([1.0]), path, SLOW)
    files.write_profile(chain([1.0, 1.0, 1.0]), tmp_path / "chain.json")
    return path


def test_a_cluster_file_keeps_the_runtime_apart(machine: Path) -> None:
    assert (read_cluster(machine), read_runtime(machine)) == (switched([1.0]), SLOW)
    assert read_runtime("cpu-1g") == IDEAL
    write_cluster(switched([1.0]), machine)
    assert read_runtime(machine) == IDEAL and "runtime" not in machine.read_text()


def test_negative_overheads_and_unknown_habits_are_refused(machine: Path) -> None:
    with pytest.raises(InputError, match="task_overhead_s"):
        Runtime(task_overhead_s=-1.0)
    with pytest.raises(InputError, match="overlap_slowdown"):
        Runtime(overlap_slowdown=0.5)
    machine.write_text(machine.read_text().replace("task_overhead_s", "task_overheads_s"))
    with pytest.raises(InputError, match="did you mean 'task_overhead_s'"):
        read_runtime(machine)


def step_s(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> float:
    assert cli.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    report = report["strategies"][0]["report"] if "strategies" in report else report
    return float(report["step_s"])


@pytest.mark.parametrize("command", [["simulate", "--strategy", "data"], ["compare", "--strategies", "data"]])
def test_commands_add_the_overhead(command: list[str], machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = str(machine.with_name("chain.json"))
    measured = step_s([command[0], profile, "--cluster", str(machine), *command[1:], "--json"], capsys)
    write_cluster(switched([1.0]), machine)
    ideal = step_s([command[0], profile, "--cluster", str(machine), *command[1:], "--json"], capsys)
    assert measured - ideal == pytest.approx(TASKS * SLOW.task_overhead_s)


def test_sweeps_add_the_overhead(machine: Path) -> None:
    import partitioners

    values = {"profile": str(machine.with_name("chain.json")), "cluster": str(machine), "strategy": "data"}
    values["batch_size"] = files.read_profile(values["profile"]).batch_size

    def step_of_point() -> float:
        context = SweepContext(inputs=load_inputs([values]), make_plan=partitioners.make_plan, version="")
        return float(str(evaluate(context, Point(number=0, values=values)).metrics["step_s"]))

    measured = step_of_point()
    write_cluster(switched([1.0]), machine)
    assert measured - step_of_point() == pytest.approx(TASKS * SLOW.task_overhead_s)


def test_an_uploaded_cluster_brings_its_runtime(machine: Path) -> None:
    from dataclasses import replace

    store = Store({"chain": chain([1.0, 1.0, 1.0])})
    name = store.clusters.put("machine.yaml", uploads.cluster(machine.read_bytes(), "machine.yaml"))
    write_cluster(switched([1.0]), machine)
    ideal = store.clusters.put("ideal.yaml", uploads.cluster(machine.read_bytes(), "ideal.yaml"))
    steps = []
    for cluster in (name, ideal):
        asked = replace(store.default(), cluster=cluster, strategy="data", devices=1, microbatches=None)
        outcome = store.outcome(asked)
        assert outcome.run is not None, outcome.reason
        steps.append(outcome.run.report.step_s)
    assert steps[0] - steps[1] == pytest.approx(TASKS * SLOW.task_overhead_s)
