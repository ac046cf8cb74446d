"""Arithmetic on sets of time spans, each an array of shape (n, 2) with columns start and end, in seconds."""

from __future__ import annotations

import numpy as np

from simulator.engine import engine_name
from simulator.engine.compiled import compiled_covered_s, compiled_previous
from simulator.taskgraph import Floats, Ints


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


def covered_s(start: Floats, end: Floats, owner: Ints, owners: int) -> Floats:
    """Seconds that the spans of each of `owners` cover, `length` of their `union`; start, end, owner: of each span."""
    if engine_name() == "compiled":
        return compiled_covered_s(start, end, owner, owners)
    spans = of_each_owner(np.stack([start, end], axis=1), owner, owners)
    return np.array([length(union(of_owner)) for of_owner in spans])


def previous_of_owner(start: Floats, end: Floats, owner: Ints) -> Ints:
    """For each span the last one of some length that its owner has before it, or -1; by start, then by end."""
    owners = int(owner.max(initial=0)) + 1
    if engine_name() == "compiled":
        return compiled_previous(start, end, owner, owners)
    order = np.lexsort((end, start, owner))
    lasting = np.where(end[order] > start[order], np.arange(len(order)), -1)
    previous = np.maximum.accumulate(lasting)[:-1]
    same = (previous >= 0) & (owner[order[1:]] == owner[order[previous]])
    before = np.full(len(order), -1)
    before[order[1:][same]] = order[previous[same]]
    return before


def of_each_owner(values: Floats, owner: Ints, owners: int) -> list[Floats]:
    """The entries that each owner has, in their order; owner: of each entry."""
    order = np.argsort(owner, kind="stable")
    parts: list[Floats] = np.split(values[order], np.cumsum(np.bincount(owner, minlength=owners))[:-1])
    return parts
