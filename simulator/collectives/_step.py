"""What every collective turns into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.taskgraph import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transfer (with a route) or one computation on a server (with a device) of a collective.

    bytes cross each pair of the route; a measured transfer takes `seconds` and does not contend. `after`:
    earlier steps of this collective that must have ended; `needs`: devices whose gradient must be ready;
    `delivers`: devices that hold the result when it ends.
    """

    route: Route | None = None
    bytes: float = 0.0
    seconds: float = 0.0
    device: int = -1
    after: tuple[int, ...] = ()
    needs: tuple[int, ...] = ()
    delivers: tuple[int, ...] = ()


Collective = Callable[[Cluster, Sequence[int], float, float], list[Step]]
"""(cluster, group of at least 2 devices, bytes, optimizer seconds at speed 1) -> steps."""


def both_ways(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """`pairs`, each followed by itself turned round."""
    return tuple(pair for a, b in pairs for pair in ((a, b), (b, a)))
