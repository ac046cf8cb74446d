"""How a group of devices sums a gradient bucket: one file per collective. This folder is the registry.

A file that does not start with "_" is a collective. Its name, with hyphens for underscores, is the collective's name
everywhere, and it exposes `COLLECTIVE`, a Collective (see `_collective.py`), which turns (group, bytes, cluster, update
seconds) into CollectiveTasks. Members that move in lockstep are one fluid transfer over all their links, not a message
for each in each round: with nothing else on the links the two take the same time, and the simulator's work does not
grow with N squared. Against other traffic the whole transfer goes at the pace of its slowest member, as it does for
real, where each round waits for all.

    ring               neighbours in a circle                            2(N-1)/N S/B, 2(N-1) latencies
    halving-doubling   exchanges at distance 1, 2, 4, ...                2(N-1)/N S/B, 2 log2 N latencies
    tree               two binary trees, half of the bytes each          2 S/B, 2 ceil(log2 N) latencies
    hierarchical       rings inside hosts, rings between them            see there
    hierarchical-tree  rings inside hosts, double trees between them     see there
    all-to-all         every pair directly                               2(N-1)/N S/B, 2 latencies
    ps                 parameter servers on hosts of their own           2N/K S/B, 2 latencies
    ps-workers         parameter servers on workers                      2(N-1)/K S/B, 2 latencies

`exchange` is what activations take beside: all-gather, reduce-scatter and all-to-all of one tensor. `scattered_sum`
leaves each device a slice of the sum, `sum_and_give` serves groups that nothing else fits.
"""

from __future__ import annotations

from typing import cast

from simulator.collectives._collective import Collective, CollectiveTask
from simulator.collectives._exchanges import exchange, scattered_sum, sum_and_give
from simulator.registry import entries, load_entry

__all__ = ["Collective", "CollectiveTask", "exchange", "load", "names", "scattered_sum", "sum_and_give"]


def names() -> tuple[str, ...]:
    """The names of all collectives, sorted."""
    return entries(__name__)


def load(name: str) -> Collective:
    """The collective called `name`. Raises UnknownNameError."""
    return cast(Collective, load_entry(__name__, "collective", name).COLLECTIVE)
