"""A published step beside its prediction, and the figures of many: errors, ranks, verdicts, intervals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import nan

from simulator.report.interval import StepInterval

FEWEST_OF_A_GROUP = 5
"""Plans of a network on as many devices, for a rank correlation and a regret of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """One published run; None where the source does not say a figure, or the product refused to predict it."""

    name: str
    predicted_s: float | None = None
    """Seconds of the step, as the product says; None where it refuses the plan, which counts as an error of 100 %."""
    measured_s: float | None = None
    """Seconds of the step, as published."""
    kind: str = ""
    """What the prediction stands on, a name of `simulator.report.evidence`."""
    interval: StepInterval | None = field(default=None, repr=False, compare=False)
    """The interval of 9 in 10 steps that the product prints."""
    low_s: float = nan
    high_s: float = nan
    """Its ends by what other sources say of that."""
    peak_bytes: float | None = None
    """Predicted peak of the device whose peak was published."""
    measured_peak_bytes: float | None = None
    fit: str = ""
    """The product's verdict on its memory, empty where it refused the plan; all published runs did run."""
    plain_s: float | None = None
    """Seconds by the plainest formula, but for a factor that all runs of the source share."""
    group: str = ""
    """The network and machine whose plans are ranked among each other."""
    family: str = ""
    """A row of the table of its source."""
    software: str = ""
    """Whose steps it is one of, where a source has those of several: each of these stands for a source."""
    counted: bool = True
    """Whether it enters the figures."""
    note: str = ""
    """What a reader has to know."""

    @property
    def fits(self) -> bool:
        """Whether the product expects the run to fit."""
        return self.fit in ("fits", "border")

    @property
    def error(self) -> float:
        """Predicted over measured, less 1; -1 where nothing was predicted. Of steps that were measured."""
        assert self.measured_s is not None
        return (self.predicted_s or 0.0) / self.measured_s - 1

    @property
    def peak_error(self) -> float | None:
        """The same of the peak, None where it was not published."""
        return (self.peak_bytes or 0.0) / self.measured_peak_bytes - 1 if self.measured_peak_bytes else None

    @property
    def inside(self) -> bool:
        """Whether the interval holds the measured step."""
        return self.measured_s is not None and self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What steps and peaks of several runs come to; ratios, nan where there are none.

    steps, failed: runs whose step was published, and those of them that the product refuses. median to worst: of
    errors, absolute but for bias and worst. rank, regret, worst_regret: Spearman's correlation, and how much longer the
    plan takes that was predicted best, over the groups. inside, width: share of intervals that hold the step, and their
    high over low at the median. memory: median error of peaks. refused: runs that ran and are said not to fit.
    plain: median error of the plainest formula, its one factor fitted to these runs.
    """

    steps: int
    failed: int
    median: float
    mean: float
    bias: float
    p90: float
    worst: float
    rank: float
    regret: float
    worst_regret: float
    inside: float
    width: float
    memory: float
    refused: int
    plain: float

    @classmethod
    def of(cls, every: Iterable[PredictedStep]) -> Figures:
        """Of the runs that count."""
        counted = [each for each in every if each.counted]
        timed = [each for each in counted if each.measured_s is not None]
        errors = [each.error for each in timed]
        sizes = sorted(map(abs, errors))
        peaks = [abs(each.peak_error) for each in counted if each.peak_error is not None]
        ranged = [each for each in timed if each.high_s > 0]
        # so that a step read from the data file, of six digits, has the width of the one that was simulated
        widths = [round(each.high_s / each.low_s, 4) for each in ranged if each.low_s > 0]
        rank, regret, worst_regret = rank_and_regret(timed)
        return cls(
            steps=len(timed),
            failed=sum(each.predicted_s is None for each in timed),
            median=_mean_or_nan(sizes, statistics.median),
            mean=_mean_or_nan(sizes),
            bias=_mean_or_nan(errors),
            p90=sizes[min(len(sizes) - 1, round(0.9 * len(sizes)))] if sizes else nan,
            worst=max(errors, key=abs, default=nan),
            rank=rank,
            regret=regret,
            worst_regret=worst_regret,
            inside=_mean_or_nan([float(each.inside) for each in ranged]),
            width=_mean_or_nan(widths, statistics.median),
            memory=_mean_or_nan(peaks, statistics.median),
            refused=sum(each.fit != "" and not each.fits for each in counted),
            plain=plain_error(timed),
        )


def _mean_or_nan(values: Sequence[float], of: Callable[[Sequence[float]], float] = statistics.fmean) -> float:
    return of(values) if values else nan


def plain_error(steps: Iterable[PredictedStep]) -> float:
    """Median error of the plainest formula when its one factor is the median that these runs ask for."""
    ratios = [each.plain_s / each.measured_s for each in steps if each.plain_s and each.measured_s]
    return statistics.median(abs(ratio / statistics.median(ratios) - 1) for ratio in ratios) if ratios else nan


def rank_and_regret(steps: Iterable[PredictedStep]) -> tuple[float, float, float]:
    """(rank correlation, mean and largest regret) over groups of FEWEST_OF_A_GROUP and more predicted plans."""
    groups: dict[str, list[PredictedStep]] = {}
    for each in steps:
        if each.group and each.predicted_s is not None:
            groups.setdefault(each.group, []).append(each)
    kept = [group for group in groups.values() if len(group) >= FEWEST_OF_A_GROUP]
    if not kept:
        return nan, nan, nan
    ranks = [rank_correlation(group) for group in kept]
    weights = [len(group) for group in kept]
    regrets = [_regret(group) for group in kept]
    mean_rank = statistics.fmean(ranks, weights)
    return mean_rank, statistics.fmean(regrets), max(regrets)


def _regret(group: Sequence[PredictedStep]) -> float:
    """How much longer the plan predicted best takes than the best one."""
    predicted_best = min(group, key=lambda each: each.predicted_s or nan)
    best = min(group, key=lambda each: each.measured_s or nan)
    return _ratio(predicted_best.measured_s, best.measured_s) - 1


def _ratio(numerator: float | None, denominator: float | None) -> float:
    return numerator / denominator if numerator and denominator else nan


def rank_correlation(steps: Sequence[PredictedStep]) -> float:
    """Spearman's: the correlation of the ranks of predicted and measured seconds, ties at their mean rank.

    To the digits of the data file: plans that are predicted alike are ties, read from it or simulated.
    """
    predicted, measured = (
        _ranks([float(f"{each.predicted_s or nan:.6g}") for each in steps]),
        _ranks([each.measured_s or nan for each in steps]),
    )
    varied = len(set(predicted)) > 1 and len(set(measured)) > 1
    return statistics.correlation(predicted, measured) if varied else nan


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values]


def mean_error(steps: Sequence[PredictedStep]) -> float:
    """Mean absolute error of the steps that count."""
    return Figures.of(steps).mean


def worst_error(steps: Sequence[PredictedStep]) -> float:
    """The error furthest from 0 of the steps that count."""
    return Figures.of(steps).worst
