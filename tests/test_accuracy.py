"""docs/accuracy.md holds what its command computes from the published measurements, within the bounds it promises."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.accuracy import (
    _grids,
    bytedance,
    ddp_buckets,
    dgxc,
    llm_foundry,
    megatron_golden,
    neusight,
    sailor,
    torchtitan,
)
from benchmarks.accuracy.__main__ import PAGE, SECTIONS, SLOW
from benchmarks.accuracy._steps import PredictedStep, mean_error, rank_correlation, summary, worst_error
from simulator.cli import main
from simulator.language_models.model_card import read_card

FOLDER = Path(_grids.__file__).parent


@pytest.fixture(autouse=True)
def _data(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))


@pytest.mark.parametrize("name", [name for name in SECTIONS if name not in SLOW])
def test_the_page_is_up_to_date(name: str) -> None:
    section = import_module(f"benchmarks.accuracy.{name}").section()
    assert section in PAGE.read_text(encoding="utf-8"), "run: python -m benchmarks.accuracy --write"


def test_steps_of_four_h100_are_within_3_percent() -> None:
    assert mean_error(neusight.predicted_steps()) <= 0.03
    assert abs(neusight.pipelined_step().error) <= 0.03


def test_plans_of_opt_350m_with_micro_batches_of_two_or_more() -> None:
    steps = sailor.predicted_steps()
    assert (len(steps), sum(each.counted for each in steps)) == (15, 11)
    assert mean_error(steps) <= 0.04


def test_buckets_come_out_to_the_element() -> None:
    buckets = ddp_buckets.buckets()
    assert [each.elements for each in buckets] == [each.recorded_elements for each in buckets]
    assert [each.elements for each in buckets] == [2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040]


def test_every_step_of_the_production_job_is_replayed_within_2_percent() -> None:
    steps = bytedance.predicted_steps()
    assert len(steps) == 32
    assert abs(worst_error(steps)) <= 0.02
    assert mean_error(steps) < mean_error(bytedance.authors_steps())


def test_fsdp_and_memory_stay_within_what_the_page_says() -> None:
    done = [_grids.predicted(run) for run in llm_foundry.runs()]
    assert len(done) == 78 and mean_error([each.step for each in done]) <= 0.085
    assert sum(not each.report.fits for each in done) <= 4
    peaks = megatron_golden.predicted_peaks()
    stated, silent = ([abs(peak.error) for peak in peaks if peak.stated == says] for says in (True, False))
    assert len(stated) == 71 and sum(stated) / len(stated) <= 0.03
    assert len(silent) == 150 and sum(silent) / len(silent) <= 0.05


@pytest.mark.parametrize("runs", [llm_foundry.runs, dgxc.runs, torchtitan.runs], ids=lambda runs: runs.__module__)
def test_a_published_number_is_what_its_command_says(
    runs: Callable[[], list[_grids.PublishedRun]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = next(run for run in runs() if run.card == read_card(run.card.name))
    monkeypatch.chdir(tmp_path)
    for line in run.command.splitlines():
        words = shlex.split(line)[1:]
        capsys.readouterr()
        assert main([*words, *(["--json"] if words[0] == "simulate" else [])]) == 0
    printed = json.loads(capsys.readouterr().out)
    report = _grids.predicted(run).report
    assert (printed["step_s"], printed["peak_memory_bytes"]) == (report.step_s, report.peak_memory_bytes)


FORMULAS = {("_steps", "error"), ("_steps", "steps_table"), ("_grids", "plainest_errors")}
"""What a prediction is held against, and units of a table."""
MEASURED = {("bytedance", "_durations"), ("ddp_buckets", "predicted_steps")}
"""Where recorded moments become measured durations."""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_no_published_step_is_made_by_arithmetic_on_seconds(path: Path) -> None:
    """Sums, differences and products of values named as seconds: predictions come from the simulator alone."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and (path.stem, function.name) not in FORMULAS | MEASURED:
            made = [
                ast.unparse(each)
                for each in ast.walk(function)
                if (isinstance(each, ast.BinOp) and any(_is_seconds(side) for side in (each.left, each.right)))
                or (isinstance(each, ast.AugAssign) and _is_seconds(each.target))
            ]
            assert not made, f"{path.name}, {function.name}: {made}"


def _is_seconds(node: ast.expr) -> bool:
    node = node.func if isinstance(node, ast.Call) else node
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.endswith(("_s", "_ms")) and not name.endswith(("per_s", "per_ms"))


def test_figures_below_a_table() -> None:
    pairs = ((11.0, 10.0, True), (19.0, 20.0, True), (31.5, 30.0, True), (40.0, 1.0, False))
    steps = [
        PredictedStep(name="", predicted_s=predicted, measured_s=measured, counted=counted)
        for predicted, measured, counted in pairs
    ]
    assert mean_error(steps) == pytest.approx(0.2 / 3)
    assert worst_error(steps) == pytest.approx(0.1)
    assert summary(steps, "none").startswith("3 steps; mean absolute error 6.7%; bias +3.3%; worst +10.0%; rank corr")
    assert rank_correlation(steps[:3]) == pytest.approx(1.0)
    assert rank_correlation(steps) == pytest.approx(-0.2)
