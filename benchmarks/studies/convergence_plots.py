"""The plots of docs/convergence.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import inf, isfinite, log
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.demonstrated import DemonstratedPlan, Demonstration
from benchmarks.studies.interconnects import RATES_BIT, STRATEGIES, Best
from simulator.convergence.curves import Curves, Method, Regime, noise_scale
from simulator.convergence.noise_scale import over_training
from simulator.studies.scaling_figure import COLOURS


def samples(curves: Curves, target: float, path: Path) -> None:
    """Samples to the target over the batch size with both noise scales, and over staleness."""
    figure, (left, right) = _axes(2, 11)
    sizes = [regime.batch_size for regime in curves.measured("synchronous")]
    _trials(left, curves, target, "synchronous", sizes, [Regime(batch_size=size) for size in sizes], COLOURS[0])
    known = [curves.samples_to(target, Regime(batch_size=size)).interval.median for size in sizes]
    line = np.geomspace(sizes[0], sizes[-1], 100)
    scales = {"fitted": noise_scale(curves, target), "measured": over_training(curves.noise)}
    for (name, scale), colour in zip(scales.items(), COLOURS[1:], strict=False):
        least = 1 / statistics.fmean((1 + size / scale) / samples for size, samples in zip(sizes, known, strict=True))
        label = f"noise scale {scale:.0f}, {name}"
        left.plot(line, least * (1 + line / scale), color=colour, linestyle="--", label=label)
    left.set(xscale="log", yscale="log", xlabel="batch size", ylabel=f"samples to {target:.0%}")
    left.set_xticks(sizes, map(str, sizes))
    for (method, name), colour in zip(STALE.items(), COLOURS[3:], strict=False):
        regimes = curves.measured(method)
        _trials(right, curves, target, name, [regime.staleness for regime in regimes], regimes, colour)
    right.set(xlabel="staleness, updates", yscale="log", title="batch 64", ylim=left.get_ylim())
    _save(figure, (left, right), path)


STALE: dict[Method, str] = {"asynchronous": "asynchronous servers", "stashing": "PipeDream's weight versions"}


def demonstration(demonstrated: Demonstration, curves: Curves, path: Path) -> None:
    """Accuracy over wall-clock, simulated (dashed, over the curves' trials) and real (one line per seed)."""
    rates = list(dict.fromkeys(training.network.mbit for training in demonstrated.shown))
    figure, axes = _axes(len(rates), 12)
    for axis, mbit in zip(axes, rates, strict=True):
        shown = [training for training in demonstrated.shown if training.network.mbit == mbit]
        for strategy, colour in zip(dict.fromkeys(training.strategy for training in shown), COLOURS, strict=False):
            trainings = [training for training in shown if training.strategy == strategy]
            _shown(axis, trainings, curves, demonstrated.target, colour)
        axis.axhline(demonstrated.target, color="#999999", linewidth=0.8)
        axis.set(title=f"2 ranks, {mbit} Mbit/s", xlabel="seconds of training", ylabel="accuracy", ylim=(0, 1.02))
        axis.set(xscale="log")
    _save(figure, axes, path)


def _shown(axis: Any, group: Sequence[DemonstratedPlan], curves: Curves, target: float, colour: str) -> None:
    first = group[0]
    for each in group:
        ends = np.cumsum(each.training.steps_s)
        seen = [int(samples // each.batch_size) - 1 for samples, _ in each.training.points]
        axis.plot(ends[seen], [accuracy for _, accuracy in each.training.points], color=colour, alpha=0.35, linewidth=1)
        axis.plot(each.seconds_to(target), target, "o", color=colour, markersize=4)
    points = accuracy_curve(curves, target, Regime(batch_size=first.batch_size))
    per_sample_s = first.predicted_step_s / first.batch_size
    seconds = [samples * per_sample_s for samples, _ in points]
    axis.plot(
        seconds[1:], [accuracy for _, accuracy in points[1:]], "--", color=colour, linewidth=2, label=first.strategy
    )
    axis.plot(
        first.predicted_samples[0] * per_sample_s, target, "D", color=colour, markersize=7, markeredgecolor="black"
    )


def accuracy_curve(curves: Curves, target: float, regime: Regime) -> tuple[tuple[float, float], ...]:
    """(samples, median accuracy of the trials) from the start until the last trial ended.

    Where the regime was not measured, the curve of the nearest batch size of its method, stretched so that it reaches
    `target` after as many samples. Raises InputError as `Curves.samples_to` does.
    """

    def distance(other: Regime) -> tuple[float, int]:
        return abs(log(other.batch_size / regime.batch_size)), abs(other.staleness - regime.staleness)

    like = min(curves.measured(regime.method), key=distance)
    expected, reached = (curves.samples_to(target, each).interval.median for each in (regime, like))
    stretch = expected / reached if isfinite(expected) and isfinite(reached) else 1.0
    points = [np.array(trial.points).T for trial in curves.by_regime[like]]  # (samples and accuracies, points) each
    seen = sorted({samples for trial_seen, _ in points for samples in trial_seen.tolist()})
    accuracies = np.median([np.interp(seen, *trial) for trial in points], axis=0).tolist()
    return tuple((samples * stretch, accuracy) for samples, accuracy in zip(seen, accuracies, strict=True))


def interconnects(best: Sequence[Best], path: Path) -> None:
    """Time to the target over the bandwidth."""
    figure, (axis,) = _axes(1, 7)
    for strategy, colour in zip(STRATEGIES, (*COLOURS, "#999999"), strict=True):
        points = [point for point in best if point.strategy == strategy]
        axis.plot(
            [RATES_BIT[point.rate] for point in points],
            [point.median_s for point in points],
            "o-",
            color=colour,
            label=strategy,
        )
    axis.set(xscale="log", yscale="log", xlabel="bandwidth, bit/s", ylabel="seconds to 97 %")
    _save(figure, (axis,), path)


def _trials(
    axis: Any, curves: Curves, target: float, name: str, places: Sequence[int], regimes: Sequence[Regime], colour: str
) -> None:
    """A point per trial, and a line through the medians."""
    for position, regime in zip(places, regimes, strict=True):
        samples = [trial.samples_to(target) for trial in curves.by_regime[regime]]
        axis.plot([position] * len(samples), [x if x < inf else np.nan for x in samples], ".", color=colour, alpha=0.5)
    medians = [curves.samples_to(target, regime).interval.median for regime in regimes]
    axis.plot(places, medians, "o-", color=colour, label=f"{name}, median")


def _axes(count: int, width: float) -> tuple[Any, Sequence[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, count, figsize=(width, 4.5), squeeze=False)
    return figure, list(axes[0])


def _save(figure: Any, axes: Sequence[Any], path: Path) -> None:
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
