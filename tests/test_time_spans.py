"""Sets of time spans: their union, and amounts spread evenly over them into bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import engine_name
from simulator.report.time_spans import covered_s, length, previous_of_owner, spread, union

ENGINES = pytest.mark.parametrize("engine", sorted({"reference", engine_name()}))
NOTHING = (np.zeros(0, dtype=np.int64),) * 3
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


@ENGINES
def test_an_empty_span_is_after_what_ended_when_it_began(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that begin together the empty one comes first, in whatever order they are written."""
    monkeypatch.setenv("SHARDSCOPE_ENGINE", engine)
    start, end = np.array([2.0, 2.0, 0.0, 2.0, 0.0]), np.array([3.0, 2.0, 2.0, 2.0, 5.0])
    assert previous_of_owner(start, end, np.array([1, 1, 1, 1, 0])).tolist() == [2, 2, -1, 2, -1]


@ENGINES
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2)), max_size=24))
def test_the_previous_span_is_the_last_of_some_length_in_order(engine: str, drawn: list[tuple[int, int, int]]) -> None:
    start, lasts, owner = (
        (np.array(column, dtype=np.int64) for column in zip(*drawn, strict=True)) if drawn else NOTHING
    )
    expected = [-1] * len(drawn)
    for number in range(3):
        last = -1
        for span in sorted(np.flatnonzero(owner == number).tolist(), key=lambda k: (start[k], lasts[k], k)):
            expected[span] = last
            last = span if lasts[span] else last
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDSCOPE_ENGINE", engine)
        before = previous_of_owner(start.astype(float), (start + lasts).astype(float), owner)
    assert before.tolist() == expected
