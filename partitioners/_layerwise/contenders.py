"""Choices that a least sum may have: all others are ruled out by a lower bound.

Fixing by reduced cost, with the bound of messages along the edges. On networks, which are nearly chains, two sweeps
leave about one choice a layer, so that the exact search has hardly anything to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from partitioners._layerwise.elimination import Edges, sum_of
from partitioners._layerwise.messages import MessagePassing
from simulator.taskgraph import Floats, Ints

_SWEEPS = 3
_ROUNDING = 1e-9
"""Of the sum: what is no further above the least than this stays, so that it is the exact search that decides."""


def contenders(nodes: Sequence[Floats], edges: Edges) -> list[Ints]:
    """The choices of each node, ascending, that are not ruled out.

    A bound never falls from sweep to sweep, and a choice's regret is by how much it would be higher at that time with
    that choice. So those are left out whose regret and the bound before exceed the cost of the best choices so far.
    """
    messages, stays = MessagePassing(len(nodes), edges), [np.ones(len(cost), dtype=np.bool_) for cost in nodes]
    bound, best = -inf, inf
    for _ in range(_SWEEPS):
        shifted = messages.sweep(nodes, edges)
        best = min(best, sum_of(nodes, edges, shifted.choices))
        for stay, regrets in zip(stays, shifted.regrets, strict=True):
            stay &= bound + regrets <= best + _ROUNDING * abs(best)
        bound = shifted.bound
    return [np.flatnonzero(stay) for stay in stays]
