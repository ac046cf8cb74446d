"""Validation: the suite, what is stored, the parts that torch's pipelines run; with root, three real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

import torch
from plans import planned
from torch import nn

from simulator import files
from simulator.cli.validate import make_plan
from simulator.cluster import AchievedShare
from simulator.curve import Curve
from simulator.errors import InputError, RunError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.runtime import IDEAL, TORCH_PIPELINING, Runtime
from simulator.workload import Profile
from traces.calibrate.median_calibration import Calibration, median_calibration
from traces.capture.fx_steps import Trained, trace
from traces.capture.median_profile import median_profile
from traces.lab import namespaces
from traces.results import validation_cases
from traces.results.validation_cases import Case, LabNetwork, with_habits_of
from traces.results.validations import Round, ValidatedRun, prediction_inputs, summarised
from traces.runs.torch_runtimes.measured_steps import run_of_ranks
from traces.runs.torch_runtimes.pipelining import run_pipeline
from traces.runs.torch_runtimes.stage_modules import cut
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.validation import measured_inputs, validate
from traces.zoo.networks import load

pytestmark = pytest.mark.usefixtures("forked_python")
REASON = namespaces.available()
CASE = validation_cases.Case(
    model="vgg_small", network=validation_cases.LabNetwork(ranks=2, mbit=200), strategy="data", via="ddp"
)


def outcome(error: float, mbit: int = 200) -> ValidatedRun:
    """A run of 100 ms, the median of three rounds, that was predicted with this error."""
    return ValidatedRun(
        case=replace(CASE, network=validation_cases.LabNetwork(ranks=2, mbit=mbit)), predicted_s=0.1 * (1 + error),
        predicted_bytes=1000.0, predicted_memory_bytes=5e6, rounds=tuple(made(s) for s in (0.09, 0.1, 0.12)),
    )  # fmt: skip


def made(step_s: float) -> Round:
    return Round(
        step_s=step_s, spread_s=0.001, steps=16, sent_bytes=1010.0, peak_bytes=6_000_000, load=0.5,
        date="2026-11-21 03:00",
    )  # fmt: skip


def test_the_local_suite_has_what_it_promises() -> None:
    cases = validation_cases.local()
    assert len({case.name for case in cases}) == len(cases) >= 40
    assert {case.network.ranks for case in cases} == {2, 4, 8}
    assert {case.network.mbit for case in cases} >= {100, 2000}
    assert len({case.model for case in cases}) == 3
    assert {case.via for case in cases} == {"ddp", "pipelining", "execute"}
    assert any(case.straggler is not None for case in cases) and any(case.network.trunk_mbit for case in cases)


def reduced() -> list[Case]:
    """Two runs of the local suite, its smallest network in one lab, for a test of a minute."""
    small = [case for case in validation_cases.local() if case.model == "alexnet_small"]
    cases = [case for case in small if case.network == LabNetwork(ranks=2, mbit=200)]
    plain = [case for case in cases if case.via == "ddp" and case.straggler is None and case.bucket_bytes == 1 << 20]
    return [*plain, next(case for case in cases if case.via == "pipelining")]


def test_ranks_on_one_core_share_it() -> None:
    cluster = validation_cases.LabNetwork(ranks=4, mbit=1000, trunk_mbit=200).cluster([0, 1])
    assert [device.host for device in cluster.devices] == ["core0", "core1", "core0", "core1"]
    assert cluster.host_cores == {"core0": 1.0, "core1": 1.0}
    assert cluster.bandwidth_bytes_per_s(0, 1) == 125e6
    assert cluster.bandwidth_bytes_per_s(0, 2) == 25e6


def test_conditions_slow_the_straggler_only() -> None:
    cluster = CASE.network.cluster([0, 1])
    assert replace(CASE, straggler=1).with_straggler(cluster).speeds == (1.0, 0.5)
    assert CASE.with_straggler(cluster).speeds == (1.0, 1.0)
    assert with_habits_of("pipelining", IDEAL).rendezvous
    executed = with_habits_of("execute", replace(TORCH_PIPELINING, pass_overhead_s=1e-3))
    assert executed == replace(IDEAL, name=TORCH_PIPELINING.name)


def test_summary_has_mean_bias_and_worst() -> None:
    summary = summarised([outcome(0.02), outcome(-0.10, mbit=100)])
    assert summary.mean_absolute_error == pytest.approx(0.06)
    assert summary.bias == pytest.approx(-0.04)
    assert (summary.worst_error, summary.worst) == (pytest.approx(-0.10), "vgg_small-ddp-data-1MiB-2x100")
    assert summary.worst_bytes_error == pytest.approx(-10 / 1010)


def test_stored_runs_are_read_worst_first_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "available", lambda: None)
    (tmp_path / "runs").mkdir()
    both = [outcome(0.02), outcome(-0.10, mbit=100)]
    for each in both:
        files.write_json(each, tmp_path / "runs" / f"{each.case.name}.json")
    assert validate.stored(tmp_path) == both[::-1]
    assert validate.validate([CASE], tmp_path, make_plan) == [both[0]]


def test_without_a_lab_the_reason_is_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "available", lambda: "making network namespaces needs root: run with sudo")
    with pytest.raises(RunError, match="shaped network, and there is none: making network namespaces needs root"):
        validate.validate([CASE], tmp_path, make_plan)


def test_a_step_is_the_median_of_the_ranks() -> None:
    steps = ([1.0, 2.0], [3.0, 2.0], [1.5, 9.0])
    ranks = [
        {"steps_s": each, "sent_bytes": 5.0, "stolen_share": each[0] / 10, "peak_bytes": 7, "observed": [[]]}
        for each in steps
    ]
    profile, cluster = files.read_profile("vgg_small"), CASE.network.cluster([0, 1])
    measured = run_of_ranks(lower(ShardedModel(profile, make_plan(CASE, profile, cluster)), cluster), ranks)
    assert (measured.steps_s, measured.sent_bytes, measured.peak_bytes) == ((1.5, 2.0), 15.0, (7, 7, 7))
    assert measured.execution.stolen_share == 0.3


@pytest.mark.parametrize("model", ["vgg_small", "resnet_small"])
@pytest.mark.parametrize("schedule", ["gpipe", "interleaved"])
def test_stages_in_a_row_compute_what_the_network_does(model: str, schedule: str) -> None:
    profile = files.read_profile(model)
    cluster = validation_cases.LabNetwork(ranks=2, mbit=1000).cluster([0, 1])
    plan = planned("pipeline", profile, cluster, judged=False, batch_size=32, microbatches=4, schedule=schedule)
    trained = Trained(load(model).build()).eval()
    names = [[profile.layers[layer].name for layer in layers] for layers in ShardedModel(profile, plan).stages]
    value = data = torch.randn(2, *load(model).input_shape)
    whole = trained.model(data)
    for part in cut(trace(trained), names, TaskObserver(0, [])):
        value = part(*(value if isinstance(value, tuple) else (value,)))
    assert len(names) == (4 if schedule == "interleaved" else 2)
    assert torch.equal(value, whole)


class Halves(nn.Module):
    """A layer with two outputs between two linear ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        left, right = self.first(x).chunk(2, 1)
        return self.last(left * right)


def test_stages_send_no_part_of_what_a_layer_makes() -> None:
    steps, observer = trace(Trained(Halves())), TaskObserver(0, [])
    assert len(cut(steps, [["first"], ["chunk", "mul", "last", "loss"]], observer)) == 2
    with pytest.raises(InputError, match="layer 'mul' of stage 1 reads 'getitem' of stage 0, which is no whole output"):
        cut(steps, [["first", "chunk"], ["mul", "last", "loss"]], observer)


def test_a_plan_without_stages_is_refused() -> None:
    profile = files.read_profile("vgg_small")
    cluster = CASE.network.cluster([0, 1])
    with pytest.raises(InputError, match="schedule 'dataflow' is none of torch's"):
        run_pipeline(profile, cluster, make_plan(CASE, profile, cluster))


@pytest.mark.alone
@pytest.mark.skipif(REASON is not None, reason=f"no network lab: {REASON}")
def test_the_reduced_suite_runs_and_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes within 3 %, times within a factor of two: one capture of a shared machine, whose speed differs by half from
    minute to minute, says no more, so few sizes, rounds and steps are enough; `shardscope validate` measures errors."""
    monkeypatch.setattr(measured_inputs, "CALIBRATED_BYTES", (64, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 23))
    monkeypatch.setattr(validate, "STEPS", 8)
    monkeypatch.setattr(validate, "COUNTED_S", 1.0)
    repeats = {"inputs": 1, "capture": 5, "overhead": 3}
    outcomes = validate.validate(reduced(), tmp_path, make_plan, rounds=1, repeats=repeats)
    assert len(outcomes) == 2
    assert abs(summarised(outcomes).worst_bytes_error) < 0.03, outcomes
    assert all(outcome.rounds[0].steps >= 8 for outcome in outcomes), outcomes
    assert all(0.5 < outcome.predicted_s / outcome.rounds[0].step_s < 2 for outcome in outcomes), outcomes


def test_a_profile_is_the_median_of_its_captures() -> None:
    """A capture while the machine was a fifth faster counts no more than one while it was slower."""
    profile = files.read_profile("vgg_small")

    def at(speed: float) -> Profile:
        def faster(timed: Any) -> Any:
            return replace(timed, forward_s=timed.forward_s / speed, backward_s=timed.backward_s / speed)

        layers = [replace(faster(each), scaling=tuple(map(faster, each.scaling))) for each in profile.layers]
        return replace(profile, layers=tuple(layers), step_s=(profile.step_s or 1.0) / speed)

    median = median_profile([at(1.2), at(1.0), at(0.9)])
    assert median.layers == profile.layers and median.step_s == profile.step_s
    other = replace(profile, batch_size=profile.batch_size * 2)
    with pytest.raises(InputError, match="all measure the layers of 'vgg_small' at the same points"):
        median_profile([profile, other])


def test_a_calibration_that_was_disturbed_is_outvoted() -> None:
    """One of three, in which the host took core time, has every message and wait four times as long."""
    nominal = CASE.network.cluster([0, 1])

    def measured(slower: float) -> Calibration:
        curve = Curve(points=((64.0, 1e-4 * slower), (1e6, 0.04 * slower)))
        band = AchievedShare(median=1.0, low=0.9, high=1.1)
        links = [
            replace(link, bandwidth_bytes_per_s=25e6 / slower, latency_s=1e-4 * slower, curve=curve, achieved=band)
            for link in nominal.links
        ]
        runtime = Runtime(receive_cpu_s_per_byte=2e-9 * slower, busy_latency_s=2e-3 * slower)
        return replace(nominal, links=tuple(links), collectives={"all_reduce": {2: curve}}), runtime

    cluster, runtime = median_calibration([measured(4.0), measured(1.0), measured(0.8)])
    steady, habits = measured(1.0)
    assert runtime == habits and cluster.collectives == steady.collectives
    link, expected = cluster.links[0], steady.links[0]
    assert (link.bandwidth_bytes_per_s, link.latency_s, link.curve) == (25e6, 1e-4, expected.curve)
    assert link.achieved is not None
    assert (link.achieved.low, link.achieved.high) == pytest.approx((0.9 / 4, 1.1 / 0.8))
    with pytest.raises(InputError, match="all measure the links of 'lab-2x200' at the same sizes"):
        median_calibration([(steady, habits), (nominal, habits)])


def test_each_round_captures_and_calibrates_and_the_medians_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds measure 1.0, 1.5 and 1.1 times as long as the first: what is stored is the median of those so far."""
    profile, nominal = files.read_profile("vgg_small"), CASE.network.cluster([0, 1])
    made: list[str] = []

    def capture(path: Path, *_: object, **__: object) -> None:
        made.append(path.name)
        files.write_profile(replace(profile, step_s=0.1 * (1.0, 1.5, 1.1)[int(path.stem[-1])]), path)

    def calibrate(*_: object) -> Calibration:
        waits_s = 1e-3 * (1.0, 1.5, 1.1)[sum(name.endswith("yaml") for name in made)]
        made.append(f"{len(made)}.yaml")
        return nominal, Runtime(busy_latency_s=waits_s)

    monkeypatch.setattr(measured_inputs, "capture_on_all_cores", capture)
    monkeypatch.setattr(measured_inputs, "calibrated_lab", calibrate)
    for part in validate.PARTS:
        (tmp_path / part).mkdir()
    seen = []
    repeats = {"inputs": 3, "capture": 1}
    inputs = measured_inputs.InputMeasurement(folder=tmp_path, cores=[0, 1], say=print, repeats=repeats)
    for number in range(3):
        inputs.measure(CASE.model, [CASE], number, 3)
        stored, _, runtime = prediction_inputs(tmp_path, CASE)
        seen.append((len(made), stored.step_s, runtime.busy_latency_s))
    expected = [(2, 0.1, 1e-3), (4, 0.125, 1.25e-3), (6, 0.11, 1.1e-3)]
    assert seen == [pytest.approx(each) for each in expected]
    inputs.measure(CASE.model, [CASE])
    assert len(made) == 6  # all at once where there is one round, but what is stored is not made again


def test_the_first_round_alone_has_its_own_error() -> None:
    rounds = (replace(made(0.1), predicted_s=0.09), replace(made(0.2), predicted_s=0.1), made(0.2))
    run = replace(outcome(0.0), rounds=rounds)
    assert run.first_error == pytest.approx(-0.1) and run.actual_s == 0.2
    assert summarised([run]).first_round == pytest.approx((0.1, -0.1, -0.1))
    assert outcome(0.0).first_error is None and summarised([outcome(0.0)]).first_round is None
