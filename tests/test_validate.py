"""Validation: the suite, what is stored, the parts that torch's pipelines run; with root, three real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install 'shardscope[capture]'")

import torch
from plans import planned

from simulator import files
from simulator.cli.validate import make_plan
from simulator.errors import InputError, RunError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.runtime import IDEAL, TORCH_PIPELINING
from simulator.workload import Profile
from traces.capture.fx_steps import Trained, trace
from traces.capture.median_profile import median_profile
from traces.lab import namespaces
from traces.results import validation_cases
from traces.results.validations import Round, ValidatedRun, summarised
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
    assert len(validation_cases.reduced()) == 2 and all(case in cases for case in validation_cases.reduced())


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
    assert replace(CASE, via="pipelining").with_habits(IDEAL).rendezvous
    executed = replace(CASE, via="execute").with_habits(replace(TORCH_PIPELINING, pass_overhead_s=1e-3))
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
        files.write_text_atomic(tmp_path / "runs" / f"{each.case.name}.json", files.to_json(each))
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
    outcomes = validate.validate(
        validation_cases.reduced(), tmp_path, make_plan, rounds=1, repeats={"captures": 1, "capture": 5, "overhead": 3}
    )
    assert len(outcomes) == len(validation_cases.reduced())
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
