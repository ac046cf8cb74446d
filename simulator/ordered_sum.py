"""Adding numbers in an order that is stated, so that reports are equal to the last digit on every Python."""

from __future__ import annotations

from collections.abc import Iterable


def ordered_sum(values: Iterable[float]) -> float:
    """From the first to the last, rounded after each addition; 0 for none.

    From Python 3.12 on the built-in sum() carries the rounding errors of floats along, which gives another last digit
    than 3.11 where there are three or more. Integers, and sums of two, are the same with either.
    """
    total: float = 0  # a whole number as long as all are
    for value in values:
        total += value
    return total
