"""A runtime measured on a cluster is used wherever the cluster's file is: commands, sweeps, dashboard."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_networks import chain, switched

from dashboard.state import uploads
from dashboard.state.store import Store
from partitioners import make_plan
from simulator import cli, files
from simulator.errors import InputError
from simulator.files import read_profile
from simulator.language_models.training_stack import runtime_of
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.plan import StepSettings
from simulator.run import step_seconds
from simulator.runtime import IDEAL, ON_IMAGES, ON_IMAGES_16_BIT, Runtime
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


MOST_OF_NORMAL = {1: 0.0, 2: 0.5642, 8: 1.4236, 64: 2.3437}
"""Expected largest of so many standard normal draws (Harter, Biometrika 48, 1961)."""


@pytest.mark.parametrize("devices", MOST_OF_NORMAL)
def test_all_wait_for_the_slowest_of_devices_that_spread(devices: int) -> None:
    runtime = Runtime(rank_spread=0.03)
    assert runtime.slowest_of(devices) - 1 == pytest.approx(0.03 * MOST_OF_NORMAL[devices], rel=0.05, abs=1e-12)
    profile, cluster = chain([1.0, 2.0]), switched([1.0] * devices)
    plan = make_plan("data", profile, cluster, StepSettings(batch_size=devices * profile.batch_size))
    alike_s, spread_s = (step_seconds(profile, cluster, plan, each) for each in (IDEAL, runtime))
    assert spread_s == pytest.approx(alike_s * runtime.slowest_of(devices))


def test_gpus_that_read_images_spread_and_others_do_not() -> None:
    images = read_profile("resnet50_v100")
    assert runtime_of(images) == ON_IMAGES
    assert runtime_of(replace(images, dtype="float16")) == ON_IMAGES_16_BIT
    assert runtime_of(images, SLOW) == SLOW
    assert runtime_of(replace(images, device="Intel Xeon")) == IDEAL
    assert runtime_of(read_profile("bert_large_v100")) == IDEAL


@pytest.mark.parametrize("devices", [2, 8])
def test_commands_have_one_speed_up_of_one_run(devices: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Over a device with its own part of the batch, be it as many samples on each or so many in all."""
    machine = ["resnet50_v100", "--cluster", "p3-16xlarge", "--devices", str(devices), "--json"]
    said = []
    for command in (
        ["compare", "--strategies", "data", "--zero", "0"],
        ["simulate", "--strategy", "data"],
        ["scale", "--sync", "ring"],
    ):
        assert cli.main([command[0], *machine, *command[1:]]) == 0
        answer = json.loads(capsys.readouterr().out)
        report = answer["strategies"][0]["report"] if "strategies" in answer else answer.get("points", [answer])[0]
        said.append((report["step_s"], report["speedup"], report["efficiency"]))
    assert all(each == pytest.approx(said[0]) for each in said)
    assert 0.9 < said[0][2] < 0.99


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
