"""What the sections share: a predicted step beside its measurement, their table, and what is said below it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.published import table


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """Seconds of a step. counted: whether it enters the figures below the table; note: what the reader has to know."""

    name: str
    predicted_s: float
    measured_s: float
    counted: bool = True
    note: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


def steps_table(steps: Sequence[PredictedStep]) -> str:
    """Predicted, measured, error and note of every step."""
    rows = [
        [each.name, f"{each.predicted_s * 1e3:,.1f}", f"{each.measured_s * 1e3:,.1f}", f"{each.error:+.1%}", each.note]
        for each in steps
    ]
    return table(["step", "predicted ms", "measured ms", "error", "note"], rows)


def mean_error(steps: Sequence[PredictedStep]) -> float:
    """Mean absolute error of the steps that count."""
    return statistics.fmean(abs(each.error) for each in steps if each.counted)


def worst_error(steps: Sequence[PredictedStep]) -> float:
    """The error furthest from 0 of the steps that count."""
    return max((each.error for each in steps if each.counted), key=abs)


def summary(steps: Sequence[PredictedStep], noise_floor: str) -> str:
    """One line: how many steps, mean, bias, worst, rank correlation, noise floor of the measurements."""
    counted = [each for each in steps if each.counted]
    parts = [
        f"{len(counted)} step{'s' * (len(counted) > 1)}",
        f"mean absolute error {mean_error(steps):.1%}",
        f"bias {statistics.fmean(each.error for each in counted):+.1%}",
        f"worst {worst_error(steps):+.1%}",
    ]
    if len(counted) > 2:
        parts.append(f"rank correlation {rank_correlation(counted):.3f}")
    return f"{'; '.join(parts)}; noise floor: {noise_floor}."


def rank_correlation(steps: Sequence[PredictedStep]) -> float:
    """Spearman's: the correlation of the ranks of predicted and measured seconds, ties at their mean rank."""
    return statistics.correlation(
        _ranks(steps, lambda each: each.predicted_s), _ranks(steps, lambda each: each.measured_s)
    )


def _ranks(steps: Sequence[PredictedStep], seconds: Callable[[PredictedStep], float]) -> list[float]:
    values = [seconds(each) for each in steps]
    return [sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values]
