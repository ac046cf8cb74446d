"""Accuracy over simulated time in the dashboard: measured curves on the clock of each strategy. No browser."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small_networks import chain

from dashboard.figures.convergence import accuracy_over_time
from dashboard.state.configuration import Configuration
from dashboard.state.convergence import AccuracyCurve, accuracy_curves, has_curves
from dashboard.state.store import Store
from simulator.convergence.curve_files import measured, read_curves
from simulator.files import library, read_profile

MODEL = "vgg_digits"
pytestmark = pytest.mark.skipif(
    MODEL not in measured() or MODEL not in library(), reason=f"no curves and profile of {MODEL} are shipped"
)


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({MODEL: read_profile(MODEL), "other": chain([1.0, 2.0])})


@pytest.fixture(scope="module")
def now(store: Store) -> Configuration:
    return replace(store.default(), strategy="data", microbatches=None, batch_size=256)


@pytest.fixture(scope="module")
def strategy_curves(store: Store, now: Configuration) -> list[AccuracyCurve]:
    return accuracy_curves(store, now)


def test_samples_become_seconds_at_the_simulated_rate(
    store: Store, now: Configuration, strategy_curves: list[AccuracyCurve]
) -> None:
    curves = read_curves(MODEL)
    (data,) = [curve for curve in strategy_curves if curve.strategy == "data"]
    run = store.outcome(now).run
    assert run is not None and data.reached is not None
    assert data.reached.samples.source == "measured"
    seconds = data.reached.samples.interval.median / run.report.samples_per_s
    assert data.reached.seconds.median == pytest.approx(seconds) and data.reached.target == curves.target
    nearest = min(range(len(data.accuracy)), key=lambda i: abs(data.accuracy[i] - curves.target))
    assert data.median_s[nearest] == pytest.approx(seconds, rel=0.35)


def test_synchronous_strategies_differ_by_their_step_alone(strategy_curves: list[AccuracyCurve]) -> None:
    samples = {curve.reached.samples.interval.median for curve in strategy_curves if curve.reached}
    assert len(strategy_curves) >= 5 and len(samples) == 1
    seconds = [curve.reached.seconds.median for curve in strategy_curves if curve.reached]
    assert seconds == sorted(seconds)


def test_courses_only_rise_and_stay_within_their_range(strategy_curves: list[AccuracyCurve]) -> None:
    for curve in strategy_curves:
        assert list(curve.accuracy) == sorted(curve.accuracy) and list(curve.median_s) == sorted(curve.median_s)
        assert all(low <= s <= high for low, s, high in zip(curve.low_s, curve.median_s, curve.high_s, strict=True))


def test_the_figure_marks_each_target(strategy_curves: list[AccuracyCurve]) -> None:
    figure = accuracy_over_time(strategy_curves, 0.97)
    json.dumps(figure, allow_nan=False)
    stars = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert [star["y"] for star in stars] == [[0.97]] * len(strategy_curves)
    assert figure["layout"]["shapes"][0]["y0"] == 0.97
    assert accuracy_over_time([], None)["data"] == []


def test_a_network_without_curves_has_none(store: Store, now: Configuration) -> None:
    assert has_curves(store.outcome(now))
    assert not has_curves(store.outcome(replace(now, profile="other", batch_size=8)))
