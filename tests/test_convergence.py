"""Samples to a target accuracy: closed forms of the noise-scale model, published shapes, curves worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from plans import planned
from small_networks import chain, switched

from benchmarks.studies.convergence_plots import accuracy_curve
from simulator.convergence.curve_files import read_curves
from simulator.convergence.curves import Curves, Interval, Regime, Trial
from simulator.convergence.noise_scale import GradientNoise, efficiency, estimated, fitted, over_training
from simulator.convergence.time_to_accuracy import cost_to_accuracy, regime_of
from simulator.errors import InputError
from simulator.files import write_json
from simulator.lowering.sharded_model import ShardedModel
from simulator.run import run


def trial(samples: float, batch_size: int = 32, seed: int = 0, **regime: object) -> Trial:
    """Accuracy 0.9 after `samples`, on a straight line from 0 to 0.95 at once as much again."""
    points = ((0, 0.0), (round(samples), 0.9), (2 * round(samples), 0.95))
    return Trial(regime=Regime(batch_size=batch_size, **regime), learning_rate=0.1, seed=seed, points=points)  # type: ignore[arg-type]


def curves_of(*trials: Trial, noise: tuple[GradientNoise, ...] = ()) -> Curves:
    return Curves(model="small", dataset="drawn", target=0.9, trials=trials, noise=noise)


def median(curves: Curves, batch_size: int, **regime: object) -> float:
    return curves.samples_to(0.9, Regime(batch_size=batch_size, **regime)).interval.median  # type: ignore[arg-type]


def test_the_two_batch_estimator_inverts_its_expectation_for_uneven_batches() -> None:
    squared_norm, variance, sizes = 3.0, 40.0, (2, 5, 9)
    local = [squared_norm + variance / size for size in sizes]
    estimate = estimated(sizes, local, squared_norm + variance / sum(sizes))
    assert estimate == pytest.approx((squared_norm, variance), rel=1e-12)


def test_the_two_batch_estimator_has_no_bias_on_drawn_gradients() -> None:
    source, sizes, true = np.random.default_rng(0), np.array([4, 12, 32]), np.array([0.3, -0.2, 0.1])
    deviation, repeats = np.array([0.5, 1.0, 1.5]), 4000
    local = [true + source.normal(size=(repeats, 3)) * deviation / np.sqrt(size) for size in sizes]
    whole = sum(size * gradients for size, gradients in zip(sizes, local, strict=True)) / sizes.sum()
    squares = [(gradients**2).sum(axis=1) for gradients in (*local, whole)]
    drawn = np.array([estimated(sizes.tolist(), [s[i] for s in squares[:3]], squares[3][i]) for i in range(repeats)])
    error = drawn.std(axis=0) / np.sqrt(repeats)
    assert np.all(np.abs(drawn.mean(axis=0) - [(true**2).sum(), (deviation**2).sum()]) < 4 * error)


def test_one_local_batch_shows_no_noise() -> None:
    with pytest.raises(InputError, match="at least 2 local batches"):
        estimated([8], [1.0], 1.0)


def test_at_the_noise_scale_samples_and_updates_are_twice_their_least() -> None:
    assert 1 / efficiency(500, 0, 500) == 2
    sizes = np.array([10.0, 100.0, 1000.0])
    samples = 7000 * (1 + sizes / 250)
    assert fitted(sizes.tolist(), samples.tolist()) == pytest.approx((7000, 250))
    assert samples / sizes == pytest.approx(7000 / 250 * (1 + 250 / sizes))


def test_samples_that_do_not_grow_and_those_that_grow_too_fast() -> None:
    assert fitted([16, 64], [1000, 1000])[1] > 1e6
    assert fitted([16, 64], [1000, 900])[1] == inf
    _, scale = fitted([16, 64], [1000, 8000])
    assert efficiency(64, 16, scale) == pytest.approx(16 / 64)


def test_moments_of_a_training_count_by_their_inverse_noise_scale() -> None:
    noises = [
        GradientNoise(samples=0, squared_norm=4, variance=400),
        GradientNoise(samples=9, squared_norm=1, variance=900),
    ]
    batch, apart = 300, [100.0, 900.0]
    assert 1 + batch / over_training(noises) == pytest.approx(np.mean([1 + batch / scale for scale in apart]))


@pytest.mark.parametrize(
    ("name", "sizes", "growth"),
    [("ResNet-18 on CIFAR-10", (128, 1024, 4096), (1, 1.17, 1.65)), ("ImageNet", (200, 3200, 12800), (1, 1.17, 1.61))],
)
def test_the_model_fitted_to_the_ends_of_published_growth_passes_within_3_percent_of_the_middle(
    name: str, sizes: tuple[int, ...], growth: tuple[float, ...]
) -> None:
    least, scale = fitted([sizes[0], sizes[2]], [growth[0], growth[2]])
    assert least * (1 + sizes[2] / scale) == pytest.approx(growth[2]), name
    assert least * (1 + sizes[1] / scale) == pytest.approx(growth[1], rel=0.03)


def test_a_trial_reaches_the_target_between_two_points() -> None:
    points = ((0, 0.1), (100, 0.5), (200, 0.7), (300, 0.6), (400, 0.9))
    measured = Trial(regime=Regime(batch_size=4), learning_rate=0.1, seed=0, points=points)
    assert measured.samples_to(0.6) == 150 and measured.samples_to(0.7) == 200
    assert measured.samples_to(0.8) == pytest.approx(300 + 100 * 2 / 3) and measured.samples_to(0.91) == inf


def test_measured_trials_give_their_median_and_their_span() -> None:
    curves = curves_of(*(trial(samples, seed=seed) for seed, samples in enumerate((1300, 1000, 1100))))
    samples = curves.samples_to(0.9, Regime(batch_size=32))
    assert (samples.interval, samples.source) == (Interval(median=1100, low=1000, high=1300), "measured")


def test_between_batch_sizes_samples_follow_a_power_of_the_size() -> None:
    curves = curves_of(trial(1000, 16), trial(1200, 16, 1), trial(4000, 256), trial(4800, 256, 1))
    samples = curves.samples_to(0.9, Regime(batch_size=64))
    assert (samples.interval.median, samples.interval.low, samples.interval.high) == pytest.approx((2200, 2000, 2400))
    assert samples.source == "between batch 16 and 256"


def test_beyond_the_measured_sizes_the_noise_scale_takes_over() -> None:
    fitting = curves_of(trial(1100, 100), trial(1200, 200))  # E_min 1000, phi 1000
    assert median(fitting, 1000) == pytest.approx(2000) and median(fitting, 50) == pytest.approx(1050)
    measured = curves_of(trial(1100, 100), noise=(GradientNoise(samples=0, squared_norm=1, variance=1000),))
    assert median(measured, 1000) == pytest.approx(2000)
    with pytest.raises(InputError, match="measure more"):
        median(curves_of(trial(1100, 100)), 1000)


def test_staleness_costs_elsewhere_what_it_cost_where_it_was_measured() -> None:
    stale = {"method": "asynchronous", "staleness": 4}
    curves = curves_of(trial(1000, 32), trial(2000, 128), trial(1500, 32, method="asynchronous", staleness=4))
    assert median(curves, 32, **stale) == 1500 and median(curves, 128, **stale) == pytest.approx(3000)
    assert median(curves, 32, method="asynchronous", staleness=2) == pytest.approx(1250)
    with pytest.raises(InputError, match="measured up to 4"):
        median(curves, 32, method="asynchronous", staleness=5)
    with pytest.raises(InputError, match="no stashing trials"):
        median(curves, 32, method="stashing", staleness=1)


def test_a_course_is_the_median_accuracy_stretched_where_it_was_not_measured() -> None:
    curves = curves_of(trial(1000, 16), trial(1200, 16, 1), trial(4000, 64))
    measured = dict(accuracy_curve(curves, 0.9, Regime(batch_size=16)))
    assert list(measured) == [0, 1000, 1200, 2000, 2400]
    assert measured[1000] == pytest.approx((0.9 + 0.75) / 2) and measured[2400] == 0.95
    between = accuracy_curve(curves, 0.9, Regime(batch_size=32))  # sqrt(1100 x 4000) samples, nearest to 16 and to 64
    assert max(dict(between)) == pytest.approx(2400 * (1100 * 4000) ** 0.5 / 1100)


def test_a_seed_that_never_arrives_makes_the_interval_open() -> None:
    late = replace(trial(1000, seed=2), points=((0, 0.0), (5000, 0.8)))
    curves = curves_of(trial(1000), trial(1200, seed=1), late)
    assert curves.samples_to(0.9, Regime(batch_size=32)).interval == Interval(median=1200, low=1000, high=inf)


def test_a_target_that_nobody_reached_or_that_is_no_target() -> None:
    with pytest.raises(InputError, match=r"best trial of small on drawn reached 0\.95"):
        curves_of(trial(1000)).samples_to(0.96, Regime(batch_size=32))
    with pytest.raises(InputError, match="untrained"):
        curves_of(trial(1000)).samples_to(0.0, Regime(batch_size=32))


@pytest.mark.parametrize("wrong", [{"staleness": 1}, {"method": "stashing"}, {"batch_size": 0}])
def test_regimes_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Regime(**{"batch_size": 8, **wrong})  # type: ignore[arg-type]


def test_synchronous_plans_share_a_regime_and_pipedream_has_its_own() -> None:
    profile, cluster = chain([1.0, 1.0, 1.0]), switched([1.0] * 3)
    plans = [planned(name, profile, cluster, batch_size=8) for name in ("data", "pipeline")]
    assert {regime_of(ShardedModel(profile, plan)) for plan in plans} == {Regime(batch_size=8)}
    stashed = replace(plans[1], schedule="pipedream", microbatches=4)
    stages = len(stashed.devices)
    assert regime_of(ShardedModel(profile, stashed)) == Regime(batch_size=2, method="stashing", staleness=stages - 1)
    assert stages > 1


def test_time_cost_and_energy_to_the_target() -> None:
    profile, cluster = chain([0.5, 0.5]), switched([1.0] * 2)
    priced = replace(
        cluster, devices=tuple(replace(device, dollars_per_hour=1.8, watts=250.0) for device in cluster.devices)
    )
    plan = planned("data", profile, priced, batch_size=8)
    report, regime = run(profile, priced, plan).report, regime_of(ShardedModel(profile, plan))
    cost = cost_to_accuracy(curves_of(trial(800, 8), trial(880, 8, 1)), 0.9, regime, priced, report.samples_per_s)
    assert cost.seconds.low == pytest.approx(100 * report.step_s) and cost.seconds.high == pytest.approx(
        110 * report.step_s
    )
    assert cost.dollars and cost.dollars.low == pytest.approx(100 * (report.dollars_per_step or 0))
    assert cost.joules and cost.joules.median == pytest.approx(cost.seconds.median * 500)
    free = cost_to_accuracy(curves_of(trial(800, 8)), 0.9, regime, cluster, report.samples_per_s)
    assert free.dollars is None and free.joules is None


def test_curves_survive_their_file_and_unknown_keys_do_not(tmp_path: Path) -> None:
    curves = curves_of(
        trial(1000), trial(1500, 8, method="stashing", staleness=3),
        noise=(GradientNoise(samples=64, squared_norm=-0.5, variance=2.0),),
    )  # fmt: skip
    path = tmp_path / "curves.json"
    write_json(curves, path)
    assert read_curves(path) == curves
    path.write_text(path.read_text().replace('"seed"', '"sede"'))
    with pytest.raises(InputError, match="unknown key 'sede'"):
        read_curves(path)
