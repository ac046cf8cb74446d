"""How many samples a network takes to a target accuracy, from measured curves.

What decides is the batch of one update and how old the weights are that its gradients were computed with: the
Regime. Synchronous plans of one global batch share one curve whatever the partition, because they compute the same
gradients; data-parallel, pipelined and hypergraph plans then differ in the time of a step alone.

    measured here       its trials: median, lowest and highest over the seeds
    between two sizes   interpolated, samples and batch size both on logarithmic scales
    beyond the sizes    the gradient-noise-scale model (`noise_scale.py`), from the nearest measured size
    stale elsewhere     the synchronous curve times what staleness cost at the batch size where it was measured

The interval spans the trials: of n trials, one more falls inside with a chance of (n - 1) / (n + 1).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import exp, inf, isfinite, log
from typing import Literal

from simulator.convergence.noise_scale import GradientNoise, efficiency, fitted, over_training
from simulator.errors import InputError, require

Method = Literal["synchronous", "asynchronous", "stashing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What of a plan changes how much it learns from a sample: samples per update, and the age of gradients.

    staleness: updates between the weights that a gradient was computed with and those that it changes. With
    "asynchronous" parameter servers all parameters have it; with "stashing" (PipeDream) of a pipeline of
    staleness + 1 stages the first stage has it, each later one 1 less, the last none.
    """

    batch_size: int
    method: Method = "synchronous"
    staleness: int = 0

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "it is at least 1")
        fresh = self.method == "synchronous"
        rule = "it is 0 for synchronous training" if fresh else "it is at least 1 unless training is synchronous"
        require(self.staleness == 0 if fresh else self.staleness >= 1, "staleness", self.staleness, rule)

    def __str__(self) -> str:
        stale = "" if self.method == "synchronous" else f", {self.method}, staleness {self.staleness}"
        return f"batch {self.batch_size}{stale}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One real training: accuracy on samples not trained on, after so many samples; points in order."""

    regime: Regime
    learning_rate: float
    momentum: float = 0.0
    seed: int
    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        require(len(self.points) >= 1, "points", "[]", "a trial has at least one (samples, accuracy)")
        seen = [samples for samples, _ in self.points]
        require(seen == sorted(set(seen)), "points", seen, "samples strictly increase")

    @property
    def best(self) -> float:
        """The highest accuracy at any point."""
        return max(accuracy for _, accuracy in self.points)

    def samples_to(self, target: float) -> float:
        """Samples until the accuracy was first at least `target`, interpolated linearly; infinite if it never was."""
        if self.points[0][1] >= target:
            return float(self.points[0][0])
        for (before, low), (after, high) in pairwise(self.points):
            if high >= target:
                return before + (after - before) * (target - low) / (high - low)
        return inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A quantity over trials: their median, the least and the most; infinite where the target is not reached."""

    median: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """All three times `factor`."""
        return Interval(median=self.median * factor, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples to a target accuracy, and where the numbers come from."""

    interval: Interval
    trials: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Measured trainings of one network on one data set.

    target: accuracy that the trials aimed at. trials: in many regimes. noise: of gradients along one training.

    Raises InputError without trials.
    """

    model: str
    dataset: str
    device: str = ""
    target: float
    software: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    date: str = ""
    notes: str = ""
    trials: tuple[Trial, ...]
    noise: tuple[GradientNoise, ...] = ()

    def __post_init__(self) -> None:
        require(len(self.trials) > 0, "trials", "[]", "curves come from at least one trial")

    @cached_property
    def by_regime(self) -> Mapping[Regime, tuple[Trial, ...]]:
        """The trials of each regime, in the order of the file."""
        trials: dict[Regime, tuple[Trial, ...]] = {}
        for trial in self.trials:
            trials[trial.regime] = (*trials.get(trial.regime, ()), trial)
        return trials

    def measured(self, method: Method) -> list[Regime]:
        """The regimes of a method, by batch size and staleness."""
        regimes = [regime for regime in self.by_regime if regime.method == method]
        return sorted(regimes, key=lambda regime: (regime.batch_size, regime.staleness))

    def samples_to(self, target: float, regime: Regime) -> Samples:
        """Samples to `target` in `regime`. Raises InputError where the trials and the model cannot tell."""
        require(target <= 1, "target", target, "it is an accuracy between 0 and 1")
        best = max(trial.best for trial in self.trials)
        require(best >= target, "target", target, f"the best trial of {self.model} on {self.dataset} reached {best:g}")
        guessed = max(trial.points[0][1] for trial in self.trials)
        require(guessed < target, "target", target, f"it is above what an untrained {self.model} has, {guessed:g}")
        if regime in self.by_regime:
            interval = _over_trials(self.by_regime[regime], target)
            return Samples(interval=interval, trials=len(self.by_regime[regime]), source="measured")
        if regime.method == "synchronous":
            return _synchronous(self, target, regime.batch_size)
        return _stale(self, target, regime)


def _over_trials(trials: Iterable[Trial], target: float) -> Interval:
    samples = [trial.samples_to(target) for trial in trials]
    return Interval(median=statistics.median(samples), low=min(samples), high=max(samples))


def _synchronous(curves: Curves, target: float, batch_size: int) -> Samples:
    """Between measured batch sizes, or beyond them."""
    regimes = curves.measured("synchronous")
    if not regimes:
        raise InputError(f"trials: none of {curves.model} is synchronous; measure one with shardscope converge")
    below = [regime for regime in regimes if regime.batch_size < batch_size]
    above = [regime for regime in regimes if regime.batch_size > batch_size]
    if below and above:
        return _between(curves, target, below[-1], above[0], batch_size)
    nearest = above[0] if above else below[-1]
    known = _over_trials(curves.by_regime[nearest], target)
    scale = noise_scale(curves, target)
    factor = 1 / efficiency(batch_size, nearest.batch_size, scale)
    source = f"gradient noise scale {scale:.4g}, from batch {nearest.batch_size}"
    return Samples(interval=known.scaled(factor), trials=len(curves.by_regime[nearest]), source=source)


def _between(curves: Curves, target: float, below: Regime, above: Regime, batch_size: int) -> Samples:
    ends = [_over_trials(curves.by_regime[regime], target) for regime in (below, above)]
    share = log(batch_size / below.batch_size) / log(above.batch_size / below.batch_size)

    def at(part: Callable[[Interval], float]) -> float:
        low, high = map(part, ends)
        return exp(log(low) * (1 - share) + log(high) * share) if isfinite(low + high) else inf

    interval = Interval(median=at(lambda x: x.median), low=at(lambda x: x.low), high=at(lambda x: x.high))
    trials = min(len(curves.by_regime[regime]) for regime in (below, above))
    source = f"between batch {below.batch_size} and {above.batch_size}"
    return Samples(interval=interval, trials=trials, source=source)


def noise_scale(curves: Curves, target: float) -> float:
    """The noise scale, in samples, that fits the synchronous medians; the measured one where there are not two.

    Raises InputError when neither is there.
    """
    medians = {
        regime.batch_size: _over_trials(curves.by_regime[regime], target).median
        for regime in curves.measured("synchronous")
    }
    usable = {size: samples for size, samples in medians.items() if isfinite(samples) and samples > 0}
    if len(usable) >= 2:
        return fitted(list(usable), list(usable.values()))[1]
    if curves.noise:
        return over_training(curves.noise)
    raise InputError(f"noise: {curves.model} was measured at {len(usable)} batch sizes and without it; measure more")


def _stale(curves: Curves, target: float, regime: Regime) -> Samples:
    """What staleness cost at the nearest batch size where it was measured, times the synchronous samples."""
    known = curves.measured(regime.method)
    if not known:
        raise InputError(f"method: {curves.model} has no {regime.method} trials; measure them with shardscope converge")
    size = min({k.batch_size for k in known}, key=lambda size: abs(log(size / regime.batch_size)))
    ages = [k.staleness for k in known if k.batch_size == size]
    rule = f"{regime.method} training of {curves.model} was measured up to {max(ages)}; measure more"
    require(regime.staleness <= max(ages), "staleness", regime.staleness, rule)
    there, fresh = _aged(curves, target, regime, size, ages), curves.samples_to(target, Regime(batch_size=size))
    here = curves.samples_to(target, Regime(batch_size=regime.batch_size))
    factor = here.interval.median / fresh.interval.median if isfinite(fresh.interval.median) else inf
    source = f"staleness at batch {size}, {here.source} synchronously"
    return Samples(interval=there.scaled(factor), trials=here.trials, source=source)


def _aged(curves: Curves, target: float, regime: Regime, size: int, ages: Sequence[int]) -> Interval:
    """Samples at batch `size` with the regime's staleness, linearly between measured ones; 0 is synchronous."""

    def at(age: int) -> Interval:
        if age == 0:
            return curves.samples_to(target, Regime(batch_size=size)).interval
        return _over_trials(curves.by_regime[Regime(batch_size=size, method=regime.method, staleness=age)], target)

    below = max((age for age in ages if age <= regime.staleness), default=0)
    above = min(age for age in ages if age >= regime.staleness)
    if below == above:
        return at(below)
    share, ends = (regime.staleness - below) / (above - below), (at(below), at(above))
    low, high = (end.scaled(part) for end, part in zip(ends, (1 - share, share), strict=True))
    return Interval(median=low.median + high.median, low=low.low + high.low, high=low.high + high.high)
