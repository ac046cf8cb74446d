"""One order of addition on every Python."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.ordered_sum import ordered_sum


def test_additions_are_rounded_one_after_the_other() -> None:
    assert ordered_sum([1e16, 1.0, 1.0]) == 1e16  # each 1 is lost; carried along they would give 1e16 + 2
    assert ordered_sum([1.0, 1.0, 1e16]) == 1e16 + 2
    assert ordered_sum([]) == 0 and isinstance(ordered_sum([1, 2]), int)


@given(st.lists(st.floats(0, 1e9), max_size=20))
def test_a_sum_lies_within_its_rounding(values: list[float]) -> None:
    assert abs(ordered_sum(values) - sum(values)) <= 1e-14 * len(values) * max(values, default=0.0)
