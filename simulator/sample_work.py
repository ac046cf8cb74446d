"""Work that differs from sample to sample, such as that of sequences of unequal lengths packed to equal ones.

A slow device is slow for every sample, a sample of much work is slow on every device: stragglers are
`simulator.engine.noise`, this is the data's. Time follows work, bytes do not: samples are padded or packed to one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from simulator.errors import require, require_from_0
from simulator.taskgraph import Floats, Ints

MOST_PARTS = 65_536
"""Of a batch, with work of their own."""
MOST_DEVIATION = 100.0
"""Of the work of a sample, relative to the mean."""


def require_work(work: Sequence[float], samples: int) -> None:
    """Raise InputError unless a batch of `samples` has as many equal parts as `work`, each above 0."""
    require(len(work) <= MOST_PARTS, "work", f"{len(work):,} parts", f"a batch has at most {MOST_PARTS:,} of them")
    rule = f"equal parts of the batch, of which {samples} samples make no such number; use a divisor of {samples}"
    require(not work or samples % len(work) == 0, "work", f"{len(work)} numbers", rule)
    wrong = next((part for part in work if not 0 < part < inf), None)
    require(wrong is None, "work", wrong, "each part's is above 0: how many times the profile's seconds it takes")


def drawn_work(samples: int, deviation: float, seed: int = 0) -> tuple[float, ...]:
    """The work of each of `samples`, log-normal with mean 1 and this relative standard deviation; none where it is 0.

    Same seed, same work. Raises InputError for more than MOST_PARTS, or a
    deviation that is negative or above MOST_DEVIATION.
    """
    require_from_0("work_deviation", deviation, MOST_DEVIATION)
    if not deviation:
        return ()
    rule = f"work is drawn for up to {MOST_PARTS:,}; state that of fewer parts in the plan"
    require(samples <= MOST_PARTS, "samples", f"{samples:,}", rule)
    sigma = np.sqrt(np.log1p(deviation**2))
    drawn = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, samples)  # (samples,)
    return tuple(float(f"{work:.6g}") for work in drawn.tolist())


def mean_work(work: Sequence[float], samples: int, first: Ints, last: Ints) -> Floats:
    """The mean work of samples `first` to `last` of a batch, arrays of one shape, of which `work` has equal parts."""
    edges = np.arange(len(work) + 1) * (samples / len(work))  # (parts + 1,)
    before = np.concatenate([[0.0], np.cumsum(work)]) * (samples / len(work))  # (parts + 1,)
    mean: Floats = (np.interp(last, edges, before) - np.interp(first, edges, before)) / (last - first)
    return mean
