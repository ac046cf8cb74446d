"""What configurations of an edge send between pairs of devices: box by box, in units, and in blocks."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners._layerwise.region_traffic import _blocks, _boxes, _distinct, _in_units, crossing_elements
from simulator.taskgraph import Ints


def boxes(data: st.DataObject, configurations: int, devices: int) -> Ints:
    """Random ones, some of them empty, shape (configurations, devices, 4, 2)."""
    size = configurations * devices * 4
    ends = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=size, max_size=size))
    return np.sort(np.array(ends, dtype=np.int64).reshape(configurations, devices, 4, 2), axis=-1)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.data())
def test_what_crosses_is_the_overlap_of_two_boxes(own: int, needed: int, devices: int, data: st.DataObject) -> None:
    held, read = boxes(data, own, devices), boxes(data, needed, devices)
    counted = crossing_elements(held, read)
    assert counted.shape == (own, needed, devices, devices)
    for i, j, source, target in np.ndindex(*counted.shape):
        pairs = zip(held[i, source].tolist(), read[j, target].tolist(), strict=True)
        overlap = prod(max(min(a[1], b[1]) - max(a[0], b[0]), 0) for a, b in pairs)
        assert counted[i, j, source, target] == (0 if source == target else overlap)


@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_different_intervals_are_numbered(configurations: int, devices: int, data: st.DataObject) -> None:
    intervals = boxes(data, configurations, devices)[:, :, 0]
    different, number = _distinct(intervals)
    assert (different[number] == intervals).all()
    assert list(map(tuple, different.tolist())) == sorted({tuple(each) for each in intervals.reshape(-1, 2).tolist()})


def test_regions_in_units_of_what_divides_all_their_ends() -> None:
    """Of 2 samples, 3 channels, 1 row and 5 columns; along an axis on which all is nothing the unit is 1."""
    held = np.array([[[[0, 4], [0, 6], [0, 3], [0, 5]], [[4, 8], [6, 9], [3, 5], [5, 10]]]])
    read = np.array([[[[2, 6], [0, 9], [0, 1], [0, 10]], [[0, 0], [0, 0], [0, 0], [0, 0]]]])
    own, needed, unit = _in_units(held, read)
    assert unit == 2 * 3 * 1 * 5
    assert own.tolist() == [[[[0, 2], [0, 2], [0, 3], [0, 1]], [[2, 4], [2, 3], [3, 5], [1, 2]]]]
    assert needed[0, 0].tolist() == [[1, 3], [0, 3], [0, 1], [0, 2]]
    nothing = np.zeros((1, 1, 4, 2), dtype=np.int64)
    assert _in_units(nothing, nothing)[2] == 1
    assert crossing_elements(own, needed) * unit == pytest.approx(crossing_elements(held, read))


@pytest.mark.parametrize(("configurations", "readers", "devices", "count"), [
    (64, 64, 8, 1), (65, 64, 8, 2), (128, 64, 8, 2), (100, 200, 8, 5), (3, 10**6, 8, 3),
])  # fmt: skip
def test_configurations_are_looked_at_in_blocks_of_at_most_so_many_messages(
    configurations: int, readers: int, devices: int, count: int
) -> None:
    """2^18, or one configuration."""
    own = np.arange(configurations * devices * 8).reshape(configurations, devices, 4, 2)
    parts = _blocks(own, readers)
    assert len(parts) == count and np.array_equal(np.concatenate(parts), own)
    assert all(len(part) == 1 or (len(part) - 1) * readers * devices**2 <= 2**18 for part in parts)


def test_devices_without_a_shard_have_empty_boxes() -> None:
    halves = [(0, 2), (2, 4)]
    made = _boxes([[halves, [(0, 8)], [(0, 1)], [(0, 1)]], [[(0, 4)], [(0, 8)], [(0, 1)], [(0, 1)]]], 3)
    assert made[:, :, 0].tolist() == [[[0, 2], [2, 4], [0, 0]], [[0, 4], [0, 0], [0, 0]]]
    assert made[:, 0, 1:].tolist() == [[[0, 8], [0, 1], [0, 1]]] * 2 and not made[1, 1:].any()
