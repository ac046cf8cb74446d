"""Recorded steps beside the step that a plan predicts: causes of drawn traces, published ones, logs, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator import cli
from simulator.errors import InputError
from simulator.files import read_profile
from simulator.network.catalogue import read_preset
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.report.step_causes import CAUSES, step_causes
from simulator.run import run
from simulator.units import format_time
from traces.imports._recorded_phases import read_phases


def event(name: str, start_us: float, lasting_us: float, category: str = "cpu_op", **arguments: Any) -> dict[str, Any]:
    thread = 7 if category == "kernel" else 1
    return {
        "ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start_us, "dur": lasting_us,
        "args": arguments,
    }  # fmt: skip


def step(number: int, begin: float, communicated: float = 30) -> list[dict[str, Any]]:
    """A step of 200 us on the host whose kernels run 5 us later: 40 forward, 80 backward, of the communication what
    lies behind the backward pass, 10 update."""
    operators = {
        "aten::linear": (0, 20, 5, 40, "gemm"),
        "autograd::engine::evaluate_function: AddmmBackward0": (50, 20, 55, 80, "gemm"),
        "c10d::allreduce_": (80, 5, 115, communicated, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        "Optimizer.step#SGD.step": (150, 30, 165, 10, "elementwise"),
    }
    events = [event(f"ProfilerStep#{number}", begin, 200, "user_annotation")]
    for key, (name, (at, lasting, runs_at, runs, kernel)) in enumerate(operators.items()):
        launch = 10 * number + key
        events += [
            event(name, begin + at, lasting, "user_annotation" if name.startswith("Opt") else "cpu_op"),
            event("cudaLaunchKernel", begin + at + 1, 2, "cuda_runtime", correlation=launch),
            event(kernel, begin + runs_at, runs, "kernel", correlation=launch, device=0),
        ]
    return events


def trace(path: Path, events: list[dict[str, Any]], rank: int = 0) -> Path:
    content = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
    path.write_text(json.dumps(content))
    return path


def test_a_drawn_step_is_split_by_cause(tmp_path: Path) -> None:
    path = trace(tmp_path / "rank1.json", [*step(1, 0), *step(2, 200)], rank=1)
    phases = read_phases(path)
    # From the end of the first update (175) to that of the second (375): the GPU idles where no kernel runs.
    expected = {"forward": 40e-6, "backward": 80e-6, "update": 10e-6, "exposed communication": 10e-6, "waiting": 60e-6}
    assert phases.rank == 1 and phases.steps_s == pytest.approx((200e-6,))
    assert dict(phases.causes_s) == pytest.approx(expected)
    assert tuple(phases.causes_s) == CAUSES


def test_communication_counts_only_where_nothing_computes(tmp_path: Path) -> None:
    hidden = read_phases(trace(tmp_path / "hidden.json", step(1, 0, communicated=20)))
    longer = read_phases(trace(tmp_path / "longer.json", step(1, 0, communicated=45)))
    assert hidden.causes_s["exposed communication"] == pytest.approx(0, abs=1e-12)
    assert longer.causes_s["exposed communication"] == pytest.approx(25e-6)
    assert hidden.step_s == longer.step_s == pytest.approx(170e-6), "the first kernel to the end of the last"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("412ms, 405 ms\n0.44s", (0.412, 0.405, 0.44)),
        ("iteration 2/9 | elapsed time per iteration (ms): 412.5 | lr: 1e-4\n", (0.4125,)),
        ("2s", (2.0,)),
        ("rank 0 step time 412.500 ms, loss 2.1\nrank 0 step time 410.000 ms, loss 2.0\n", (0.4125, 0.41)),
    ],
)
def test_times_alone_are_read_from_text(text: str, seconds: tuple[float, ...], tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    assert read_phases(path).steps_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it says no step's time"),
        ("412", "times alone have units, e.g. 412ms"),
        ("loss 2.3", "it says no step's time"),
        ("-3ms", "it says no step's time"),
        ("0s", "it says no step's time"),
        ("| tps: 7,000 | mfu: 40%", "it says device_tokens_per_s and no step's time"),
        ('{"placements": {}}', "this is a plan: a file of step times, or a trace, is needed here"),
        ('{"traceEvents": []}', "it has no operators"),
        ('{"traceEvents": [', "ends too early"),
    ],
)
def test_what_is_no_recording_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_phases(path)


def test_predicted_causes_add_up_to_the_step() -> None:
    profile, cluster = read_profile("vgg_digits"), read_preset("cpu-1g").build(2)
    placements = {layer.name: Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)) for layer in profile.layers}
    plan = Plan(
        model=profile.model, batch_size=128, placements=placements, synchronisation=Synchronisation(overlap=False)
    )
    done = run(profile, cluster, plan)
    causes = step_causes(done.graph, done.timeline, 1, done.report.devices[1])
    assert sum(causes.values()) == pytest.approx(done.report.step_s, rel=1e-12)
    assert causes["forward"] + causes["backward"] + causes["update"] == pytest.approx(done.report.devices[1].compute_s)
    assert causes["exposed communication"] > 0


def test_the_command_compares_by_cause_or_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, log = str(tmp_path / "plan.json"), tmp_path / "train.log"
    options = ["vgg_digits", "--cluster", "cpu-1g", "--devices", "2", "--strategy", "data", "--output", plan]
    assert cli.main(["partition", *options]) == 0
    recorded = trace(tmp_path / "rank1.json", step(1, 0), rank=1)
    capsys.readouterr()
    assert cli.main(["check", str(recorded), plan, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["device"] == 1 and value["recorded_s"] == pytest.approx(170e-6)
    assert sum(value["predicted_causes_s"].values()) == pytest.approx(value["predicted_s"])
    assert cli.main(["check", str(recorded), plan]) == 0
    assert "farthest off: backward, -" in capsys.readouterr().out
    log.write_text(f"{2 * value['expected_s']}s")
    assert cli.main(["check", str(log), plan]) == 0
    out = capsys.readouterr().out
    assert "error of the prediction -50.0%" in out and "outside the 90% range" in out
    assert cli.main(["check", str(log), plan, "--device", "2"]) == 2
    assert "--device is 2: the plan computes on devices 0 to 1" in capsys.readouterr().err


def test_a_published_trace_of_resnet50_is_near_its_profile(shared_data: Path) -> None:
    phases = read_phases(shared_data / "kineto" / "resnet50-v100-full.json.gz")
    profile = read_profile("resnet50_v100")
    assert phases.step_s == pytest.approx(profile.step_s, rel=0.01)
    assert phases.causes_s["forward"] == pytest.approx(sum(x.forward_s for x in profile.layers), rel=0.05)
    assert phases.causes_s["backward"] == pytest.approx(sum(x.backward_s for x in profile.layers), rel=0.05)


def test_check_and_simulate_expect_the_same_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of devices that vary, as every surface says it: the middle of the interval, not the undisturbed step."""
    plan, log = str(tmp_path / "plan.json"), tmp_path / "train.log"
    made = ["--cluster", "cpu-1g", "--devices", "4", "--batch-size", "128"]
    assert cli.main(["partition", "vgg_small", "--strategy", "data", *made, "--output", plan]) == 0
    capsys.readouterr()
    assert cli.main(["simulate", "vgg_small", "--plan", plan, *made[:4], "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    log.write_text("0.3s\n")
    assert cli.main(["check", str(log), plan, "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["expected_s"] == simulated["interval"]["middle_s"] > simulated["step_s"] == checked["predicted_s"]
    assert checked["interval"] == simulated["interval"]
    assert cli.main(["check", str(log), plan]) == 0
    assert f"predicted {format_time(checked['expected_s'])}, error of" in " ".join(capsys.readouterr().out.split())
