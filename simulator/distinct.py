"""Arrays of whole numbers: the different ones, runs of them, and where they stand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def distinct(numbers: Ints) -> Ints:
    """Each once, ascending, of shape (n,).

    As np.unique, which hashes where it is asked for nothing but the values, and loads numpy.ma: slower for many numbers
    and, in a new process, for few.
    """
    ordered = np.sort(numbers, axis=None)
    once: Ints = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return once


def runs(first: Ints | int, counts: Ints) -> Ints:
    """first[i], first[i] + 1 and so on, counts[i] of them, for each i in turn: shape (sum of counts,)."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)


def places(ascending: Ints, sought: npt.ArrayLike) -> tuple[Ints, Ints]:
    """How often each of `sought` stands among numbers that ascend, and all the places, one number's after another's."""
    begin, end = (np.searchsorted(ascending, sought, side) for side in ("left", "right"))
    return end - begin, runs(begin, end - begin)
