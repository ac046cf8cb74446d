"""docs/accuracy.md holds what its command computes from the published measurements, within the bounds it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy import (
    bytedance,
    ddp_buckets,
    megatron_a100,
    megatron_golden,
    neusight,
    sailor,
    simumax,
    torchtitan,
)
from benchmarks.accuracy.__main__ import PAGE, page
from benchmarks.accuracy._steps import PredictedStep, mean_error, rank_correlation, summary, worst_error


@pytest.fixture(autouse=True)
def _data(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m benchmarks.accuracy --write"


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


def test_language_models_stay_within_what_the_page_says() -> None:
    assert mean_error(torchtitan.predicted_steps()) <= 0.05
    assert mean_error(simumax.predicted_steps()) <= 0.07
    peaks = megatron_golden.predicted_peaks()
    stated, silent = ([abs(peak.error) for peak in peaks if peak.stated == says] for says in (True, False))
    assert len(stated) == 71 and sum(stated) / len(stated) <= 0.03
    assert len(silent) == 150 and sum(silent) / len(silent) <= 0.05


def test_megatron_on_a100_stays_within_what_the_page_says() -> None:
    steps = megatron_a100.predicted_steps()
    assert len(steps) == 8 and mean_error(steps) <= 0.12 and abs(worst_error(steps)) <= 0.16


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
