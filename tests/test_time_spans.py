"""Sets of time spans: their union, and amounts spread evenly over them into bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.report.time_spans import covered_s, length, spread, union

MOMENTS = st.integers(0, 100_000).map(lambda count: count / 1000)
SPANS = st.lists(st.tuples(MOMENTS, MOMENTS).map(sorted), max_size=8)


def test_a_span_falls_into_the_bins_that_it_covers() -> None:
    spans = np.array([[0.25, 0.75], [0.5, 1.0], [0.6, 0.6]])
    assert spread(spans, np.array([0.0, 0.5, 1.0])) == pytest.approx([0.25, 0.75])
    amounts = np.array([100.0, 10.0, 7.0])  # the last span has no length and counts nowhere
    assert spread(spans, np.array([0.0, 0.5, 1.0]), amounts) == pytest.approx([50.0, 60.0])


def test_no_spans_fill_no_bin() -> None:
    assert spread(np.zeros((0, 2)), np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 0.0]


@given(SPANS, st.integers(1, 7))
def test_bins_add_up_to_the_amounts_whatever_their_number(spans: list[list[float]], bins: int) -> None:
    array = np.array(spans).reshape(-1, 2)  # (n, 2)
    amounts = 1.0 + np.arange(len(array))
    lasting = array[:, 1] > array[:, 0]
    total = spread(array, np.linspace(0, 100, bins + 1), amounts).sum()
    assert total == pytest.approx(amounts[lasting].sum(), rel=1e-6, abs=1e-9)


@given(SPANS)
def test_disjoint_spans_cover_what_their_union_is_long(spans: list[list[float]]) -> None:
    disjoint = union(np.array(spans).reshape(-1, 2))
    assert spread(disjoint, np.array([0.0, 100.0])).sum() == pytest.approx(length(disjoint), abs=1e-9)


@given(SPANS, st.data())
def test_owners_cover_what_each_would_alone(spans: list[list[float]], data: st.DataObject) -> None:
    array = np.array(spans).reshape(-1, 2)  # (n, 2)
    owner = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(spans), max_size=len(spans))), dtype=np.int64)
    expected = [length(union(array[owner == number])) for number in range(5)]
    assert covered_s(array[:, 0], array[:, 1], owner, 5).tolist() == expected
