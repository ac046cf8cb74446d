"""Arithmetic on sets of time spans, each an array of shape (n, 2) with columns start and end, in seconds."""

from __future__ import annotations

import numpy as np

from simulator.taskgraph import Floats


def union(spans: Floats) -> Floats:
    """The same set of moments as disjoint spans in ascending order."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate([[True], spans[1:, 0] > reach[:-1]])
    starts = np.flatnonzero(first)
    return np.stack([spans[starts, 0], np.maximum.reduceat(spans[:, 1], starts)], axis=1)


def length(spans: Floats) -> float:
    """Seconds covered by disjoint spans."""
    return float((spans[:, 1] - spans[:, 0]).sum())
