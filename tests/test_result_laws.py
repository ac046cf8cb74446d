"""Laws of what is made of measurements: alignments are longest common subsequences, summaries are means of runs."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.state.validations import SHIPPED
from simulator import files
from traces.imports._attribution import align
from traces.results.validations import ValidatedRun, Validation, summarised

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def longest_common(left: list[str], right: list[str]) -> int:
    """Length of the longest common subsequence, by the textbook's recursion."""

    @cache
    def length(i: int, j: int) -> int:
        if not i or not j:
            return 0
        return max(length(i - 1, j), length(i, j - 1), length(i - 1, j - 1) + (left[i - 1] == right[j - 1]))

    return length(len(left), len(right))


@given(WORDS, WORDS)
def test_an_alignment_is_a_longest_common_subsequence(left: list[str], right: list[str]) -> None:
    pairs = align(left, right)
    assert pairs is not None and len(pairs) == longest_common(left, right)
    assert all(left[x] == right[y] for x, y in pairs)
    assert all(x < later_x and y < later_y for (x, y), (later_x, later_y) in pairwise(pairs))


@given(WORDS, WORDS)
def test_alignments_are_as_long_in_both_directions(left: list[str], right: list[str]) -> None:
    assert len(align(left, right) or []) == len(align(right, left) or [])
    assert align(left, left) == [(i, i) for i in range(len(left))]


@cache
def outcomes() -> tuple[ValidatedRun, ...]:
    """The runs of the validation that the dashboard ships."""
    return tuple(files.read_json(SHIPPED, Validation).outcomes)


@given(st.permutations(range(12)), st.integers(1, 12))
def test_a_summary_bounds_its_runs_and_does_not_see_their_order(order: list[int], count: int) -> None:
    runs = [outcomes()[i] for i in sorted(order[:count])]
    summary, errors = summarised(runs), [run.error for run in runs]
    assert summary.runs == count
    assert min(errors) - 1e-12 <= summary.bias <= max(errors) + 1e-12
    assert abs(summary.bias) - 1e-12 <= summary.mean_absolute_error <= abs(summary.worst_error) + 1e-12
    assert abs(summary.worst_error) == max(map(abs, errors)) and summary.worst_error in errors
    other = summarised([outcomes()[i] for i in order[:count]])
    assert other.bias == pytest.approx(summary.bias) and abs(other.worst_error) == abs(summary.worst_error)


@given(st.integers(0, 11), st.integers(0, 11))
def test_a_summary_of_two_parts_is_their_weighted_mean(first: int, second: int) -> None:
    one_part, other_part = list(outcomes()[: first + 1]), list(outcomes()[12 : 13 + second])
    parts, whole = (summarised(one_part), summarised(other_part)), summarised(one_part + other_part)
    for figure in ("bias", "mean_absolute_error"):
        weighted = sum(part.runs * getattr(part, figure) for part in parts) / whole.runs
        assert getattr(whole, figure) == pytest.approx(weighted)


def test_a_runs_error_is_predicted_over_actual() -> None:
    for run in outcomes():
        assert run.error == pytest.approx(run.predicted_s / run.actual_s - 1)
        low, high = (limit(part.step_s for part in run.rounds) for limit in (min, max))
        assert low <= run.actual_s <= high and run.drift_s == pytest.approx(high - low)
