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


def spread(spans: Floats, edges_s: Floats, amounts: Floats | None = None) -> Floats:
    """What falls into each interval of `amounts` (None: seconds) that are spread evenly over their spans.

    spans: shape (n, 2), overlapping or not; amounts: shape (n,); edges_s: ascending from at least 0, shape
    (intervals + 1,). The result has shape (intervals,). Spans of no length are left out.
    """
    lasting = spans[:, 1] > spans[:, 0]
    start, end = spans[lasting, 0], spans[lasting, 1]
    rates = np.ones(len(start)) if amounts is None else amounts[lasting] / (end - start)
    # The rate changes at every start and end; its integral is linear in between.
    moments = np.concatenate([[0.0], start, end])  # (2n + 1,)
    order = np.argsort(moments, kind="stable")
    rate = np.cumsum(np.concatenate([[0.0], rates, -rates])[order])  # from each moment on
    moments = moments[order]
    total = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(moments))])  # up to each moment
    return np.diff(np.interp(edges_s, moments, total))


def length(spans: Floats) -> float:
    """Seconds covered by disjoint spans."""
    return float((spans[:, 1] - spans[:, 0]).sum())
