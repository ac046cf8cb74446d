"""The different ones among whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def distinct(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Each once, ascending, of shape (n,).

    As np.unique, which hashes where it is asked for nothing but the values, and loads numpy.ma: slower for many numbers
    and, in a new process, for few.
    """
    ordered = np.sort(numbers, axis=None)
    once: npt.NDArray[np.int64] = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return once
