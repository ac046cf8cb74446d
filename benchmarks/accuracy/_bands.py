"""How far steps of a source that nobody has seen are off: bands from the sources at hand, tried on those left out.

Residuals are logarithms of measured over predicted. A source has a bias of its own (its software, its machine), drawn
from a distribution between sources, and its runs scatter around that. The next run of the next source then lies 9 times
in 10 within

    mean of the biases +- t * sqrt(within^2 + between^2 * (1 + 1 / sources))

with t the 95 % quantile of Student's distribution (the prediction interval of a random-effects model: Higgins,
Thompson and Spiegelhalter, J. R. Statist. Soc. A 172, 2009) with the degrees of freedom of that sum: few sources say
`between`, many runs `within` (Satterthwaite, Biometrics Bulletin 2, 1946). Biases are medians, and `within` is robust:
half of what lies between the 5 and 95 % quantiles, over 1.645, pooled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import fmean, median, variance

import numpy as np

from benchmarks.accuracy._steps import PredictedStep
from simulator.report.evidence import WORDS, Kind, PredictionEvidence
from simulator.report.interval import widened

NORMAL_95 = 1.645
OTHERS = 3
"""Degrees of freedom that the spread between sources of all kinds adds."""
APART = ("unnamed", "mixture")
"""Kinds whose errors say nothing of others: of whatever software, and of launches that are not counted."""
Steps = Mapping[str, Sequence[PredictedStep]]
"""By source."""
Residuals = Mapping[str, Sequence[float]]
"""By source."""


def evidence(every: Steps) -> list[PredictionEvidence]:
    """Of each kind that some source was predicted by."""
    return [each for kind in WORDS if (each := evidence_of_kind(kind, every)) is not None]


def evidence_of_kind(kind: Kind, every: Steps) -> PredictionEvidence | None:
    """How far predictions of `kind` were off; None where no step was predicted so."""
    of, others = residuals(every, kind), residuals(every)
    if not of:
        return None
    low, high = band(of, others)
    errors = [abs(exp(-value) - 1) for values in of.values() for value in values]
    return PredictionEvidence(
        kind=kind, steps=len(errors), sources=len(of), median=round(median(errors), 4), low=round(low, 3),
        high=round(high, 3),
    )  # fmt: skip


def with_intervals(name: str, every: Steps) -> list[PredictedStep]:
    """The steps of a source, with the intervals that all others give them, another's software in it included."""
    of = {kind: residuals(every, kind) for kind in (None, *{each.kind for each in every[name]})}
    return [_with_interval(each, f"{name} {each.software}", of) for each in every[name]]


def _with_interval(step: PredictedStep, own: str, of: Mapping[str | None, Residuals]) -> PredictedStep:
    alike, others = ({key: each for key, each in of[kind].items() if key != own} for kind in (step.kind, None))
    if step.interval is None or not others:
        return step
    low, high = band(alike, others)
    known = PredictionEvidence(kind=step.kind, steps=0, sources=0, median=0.0, low=low, high=high)  # type: ignore[arg-type]
    interval = widened(step.interval, step.predicted_s or 0.0, known)
    return replace(step, low_s=interval.low_s, high_s=interval.high_s)


def residuals(every: Steps, kind: str | None = None) -> dict[str, list[float]]:
    """Of the predicted runs that count, by source and software; kind: of those alone, else of all but APART."""
    of: dict[str, list[float]] = {}
    for name, steps in every.items():
        for each in steps:
            asked = each.kind == kind if kind else each.kind and each.kind not in APART
            if asked and each.counted and each.measured_s and each.predicted_s:
                residual = log(each.measured_s / each.predicted_s)
                of.setdefault(f"{name} {each.software}", []).append(residual)
    return of


def band(of: Residuals, others: Residuals) -> tuple[float, float]:
    """5 and 95 % of measured over predicted, for a further source like those of `of`.

    others: of all kinds. How far these differ counts as much as what one more source of the kind would say of it, and
    they say everything where there is none.
    """
    from scipy.stats import t as student  # type: ignore[import-untyped]  # takes a while to load

    of = of or others
    biases = [median(values) for values in of.values()]
    within_squared, freedom = fmean(_spread(values) ** 2 for values in of.values()), len(biases) - 1
    between_squared = (freedom * _between_squared(of) + _between_squared(others)) / (freedom + 1)
    between_squared *= 1 + 1 / len(biases)
    runs = max(sum(len(values) - 1 for values in of.values()), 1)
    squares = within_squared**2 / runs + between_squared**2 / (freedom + OTHERS)
    joint = (within_squared + between_squared) ** 2 / squares if squares else freedom + OTHERS
    reach = student.ppf(0.95, joint) * sqrt(within_squared + between_squared)
    return exp(fmean(biases) - reach), exp(fmean(biases) + reach)


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of one source's residuals, from their 5 and 95 % quantiles."""
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low) / 2 / NORMAL_95


def _between_squared(of: Residuals) -> float:
    """Variance of biases beyond what the scatter within sources makes of them; 0 for a single one."""
    if len(of) < 2:
        return 0.0
    biases = [median(values) for values in of.values()]
    sampling = fmean(_spread(values) ** 2 / len(values) for values in of.values())
    return max(variance(biases) - sampling, 0.0)
