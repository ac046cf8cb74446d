"""docs/accuracy.md holds what its command computes from the published measurements, within the bounds it promises."""

from __future__ import annotations

import ast
import json
import random
import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from math import exp, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from benchmarks.accuracy import (
    _grids,
    bytedance,
    ddp_buckets,
    dgxc,
    llm_foundry,
    neusight,
    nvidia_pytorch,
    sailor,
    torchtitan,
)
from benchmarks.accuracy.__main__ import EVIDENCE_FILE, PACKED, PAGE, SLOW, SOURCES, grown, source
from benchmarks.accuracy._bands import band, evidence
from benchmarks.accuracy._source import Source, unpacked
from benchmarks.accuracy._steps import Figures, PredictedStep, mean_error, plain_error, rank_correlation, worst_error
from simulator.cli import main
from simulator.language_models.card_files import read_card

FOLDER = Path(_grids.__file__).parent


@pytest.fixture(autouse=True)
def _data(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))


SIMULATED, DEVICES = 12, 128
"""Runs of a source that are simulated here, about, where they are of so many devices; of larger ones fewer."""


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in SLOW])
def test_page_and_data_file_are_what_the_product_says_today(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids are simulated in a sample; the others are as the data file has them, which the page's command made."""
    kept = next(each for each in json.loads(PACKED.read_text(encoding="utf-8")) if each["name"] == name)
    known = {step.name: step for step in unpacked(kept)}
    predicted, one_in = _grids.predicted, max(len(known) // SIMULATED, 1)

    def sampled(run: _grids.PublishedRun) -> PredictedStep:
        if run.name in known and crc32(run.name.encode()) % (one_in * max(run.grid.devices // DEVICES, 1)):
            return replace(known[run.name], plain_s=_grids.plain_seconds(run))
        return predicted(run)

    monkeypatch.setattr(_grids, "predicted", sampled)
    made = source(name)
    assert made.section() in PAGE.read_text(encoding="utf-8"), "run: python -m benchmarks.accuracy --write"
    assert is_close(kept, {"name": name, **json.loads(json.dumps(made.packed()))})


def is_close(kept: Any, made: Any) -> bool:
    """Equal, but for the last digits of intervals: those of other sources stand rounded in the file."""
    if isinstance(kept, dict) and isinstance(made, dict):
        return kept.keys() == made.keys() and all(is_close(kept[name], made[name]) for name in kept)
    if isinstance(kept, list) and isinstance(made, list):
        return len(kept) == len(made) and all(map(is_close, kept, made))
    return bool(kept == (pytest.approx(made, rel=1e-4) if isinstance(made, float) else made))


def test_the_evidence_that_the_product_prints_is_that_of_the_data_file() -> None:
    every = {each["name"]: unpacked(each) for each in json.loads(PACKED.read_text(encoding="utf-8"))}
    assert [asdict(each) for each in evidence(every)] == json.loads(EVIDENCE_FILE.read_text(encoding="utf-8"))
    held = [each.inside for steps in every.values() for each in steps if each.counted and each.high_s > 0]
    share = sum(held) / len(held)
    assert 0.85 <= share <= 0.95, f"intervals of other sources hold {share:.1%} of the steps, not about 90 %"


def test_bands_of_sources() -> None:
    """Of three sources without scatter: the prediction interval of a further one, in closed form."""
    biases = (-0.1, 0.0, 0.1)
    alike = {str(bias): [bias] * 5 for bias in biases}
    spread = 0.1  # standard deviation of the biases, of the kind and of all
    reach = 2.015 * spread * sqrt(1 + 1 / 3)  # Student's 95 % quantile of 2 + 3 degrees of freedom
    assert band(alike, alike) == pytest.approx((exp(-reach), exp(reach)), rel=1e-3)
    single = {"0.1": alike["0.1"]}
    reach = 2.353 * spread * sqrt(2)  # nothing known of the kind's own spread: that of all
    assert band(single, alike) == pytest.approx((exp(0.1 - reach), exp(0.1 + reach)), rel=1e-3)
    assert band({}, alike) == band(alike, alike)


def test_bands_widen_with_the_scatter_within_sources() -> None:
    narrow, wide = ({"a": [-x, 0.0, x], "b": [-x, 0.0, x]} for x in (0.01, 0.2))
    assert band(wide, wide)[0] < band(narrow, narrow)[0] < 1 < band(narrow, narrow)[1] < band(wide, wide)[1]


def test_many_runs_that_scatter_alike_are_as_sure_as_a_normal_distribution() -> None:
    """Of two sources with the same bias: what few sources leave open is nothing beside what 400 runs say."""
    runs = [0.1 * NormalDist().inv_cdf((k + 0.5) / 200) for k in range(200)]
    low, high = band({"a": runs, "b": runs}, {"a": runs, "b": runs})
    spread = float(np.quantile(runs, 0.95)) / 1.645
    assert (low, high) == pytest.approx((exp(-1.6487 * spread), exp(1.6487 * spread)))  # 95 % with 398 degrees


def test_bands_hold_nine_in_ten_runs_of_a_further_source() -> None:
    """Sources and their runs drawn from normal distributions."""
    draw, held = random.Random(1), 0
    for _ in range(200):
        biases = [draw.gauss(0, 0.1) for _ in range(9)]
        sources = {str(i): [draw.gauss(bias, 0.05) for _ in range(20)] for i, bias in enumerate(biases)}
        further = sources.pop("0")
        low, high = band(sources, sources)
        held += sum(low <= exp(value) <= high for value in further)
    assert 0.86 <= held / (200 * 20) <= 0.95


def test_a_median_that_has_grown_by_a_fifth_is_named() -> None:
    steps = [PredictedStep(name="", predicted_s=1.1, measured_s=1.0)]
    made = {"some": Source(title="", method="", steps=steps, not_expressed={})}
    assert grown([{"name": "some", "median": 0.09}], made) == []
    assert grown([{"name": "some", "median": 0.08}], made) == ["some: 8.0% before, 10.0% now"]
    assert grown([{"name": "some", "median": None}], made) == grown([], made) == []


def test_steps_of_four_h100_are_within_3_percent() -> None:
    assert mean_error(neusight.predicted_steps()) <= 0.03
    assert abs(neusight.pipelined_step().error) <= 0.03


def test_images_on_eight_gpus_under_a_framework_that_was_left_out() -> None:
    """All published rows of NVIDIA's ResNet-50 in PyTorch, by the spread of ranks that other frameworks have."""
    errors = sorted(abs(each.error) for each in nvidia_pytorch.source().steps)
    assert errors[len(errors) // 2] <= 0.08 and errors[-1] <= 0.12
    assert all(abs(each.error) <= 0.02 for each in nvidia_pytorch.source().steps if each.family == "32 bits")


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
    figures = Figures.of(
        next(unpacked(each) for each in json.loads(PACKED.read_text()) if each["name"] == "llm_foundry")
    )
    assert figures.steps == 78 and figures.failed == 0 and figures.mean <= 0.085
    assert figures.refused == 0


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
    report, *_ = _grids.simulated(run)
    assert (printed["step_s"], printed["peak_memory_bytes"]) == (report.step_s, report.peak_memory_bytes)


FORMULAS = {
    ("_steps", "error"),
    ("_steps", "plain_error"),
    ("_grids", "plain_seconds"),
    ("_steps", "of"),
    ("_bands", "residuals"),
    ("_source", "_ms"),
    ("neusight", "source"),
}
"""What a prediction is held against, ratios of interval ends, and units of a table."""
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


def test_figures_of_runs() -> None:
    pairs = ((11.0, 10.0, True), (19.0, 20.0, True), (31.5, 30.0, True), (40.0, 1.0, False))
    steps = [
        PredictedStep(name="", predicted_s=predicted, measured_s=measured, counted=counted)
        for predicted, measured, counted in pairs
    ]
    assert mean_error(steps) == pytest.approx(0.2 / 3)
    assert worst_error(steps) == pytest.approx(0.1)
    assert rank_correlation(steps[:3]) == pytest.approx(1.0)
    assert rank_correlation(steps) == pytest.approx(-0.2)
    figures = Figures.of([*steps, PredictedStep(name="", measured_s=1.0)])
    assert (figures.steps, figures.failed, figures.worst) == (4, 1, -1.0)
    assert figures.median == pytest.approx(0.075) and figures.bias == pytest.approx((0.1 - 0.05 + 0.05 - 1) / 4)


def test_regret_rank_and_intervals() -> None:
    measured, predicted = (1.0, 2.0, 3.0, 4.0, 5.0), (1.6, 1.5, 3.0, 4.0, 5.0)
    steps = [
        PredictedStep(
            name="",
            predicted_s=p,
            measured_s=m,
            group="g",
            low_s=0.8 * p,
            high_s=1.2 * p,
            fit=("border", "does not fit")[m >= 5],
        )
        for m, p in zip(measured, predicted, strict=True)
    ]
    figures = Figures.of([*steps, PredictedStep(name="", predicted_s=1.0, measured_s=9.0, group="of one")])
    assert figures.regret == figures.worst_regret == 1.0
    assert figures.rank == pytest.approx(0.9)
    assert figures.inside == pytest.approx(3 / 5) and figures.width == pytest.approx(1.5)
    assert figures.refused == 1


def test_the_plainest_formula_has_one_factor() -> None:
    runs = [PredictedStep(name="", measured_s=m, plain_s=p) for m, p in ((2.0, 1.0), (4.0, 2.0), (10.0, 6.0))]
    assert plain_error(runs) == 0.0
    assert plain_error(runs[1:]) == pytest.approx(0.1 / 1.1)


def test_peaks_alone_count() -> None:
    peaks = [PredictedStep(name="", peak_bytes=p, measured_peak_bytes=10.0) for p in (9.0, 10.5, 12.0)]
    figures = Figures.of(peaks)
    assert figures.memory == pytest.approx(0.1) and figures.steps == 0
