"""How a group of devices sums a gradient bucket: one file per collective, all named in COLLECTIVES.

A collective turns (group, bytes, cluster, update seconds) into Steps. Members that move in lockstep are one
fluid transfer over all their links, not a message for each in each round: with nothing else on the links the two
take the same time, and the simulator's work does not grow with N squared. Against other traffic the whole
transfer goes at the pace of its slowest member, as it does for real, where each round waits for all.

    ring               neighbours in a circle                            2(N-1)/N S/B, 2(N-1) latencies
    halving-doubling   exchanges at distance 1, 2, 4, ...                2(N-1)/N S/B, 2 log2 N latencies
    tree               two binary trees, half of the bytes each          2 S/B, 2 ceil(log2 N) latencies
    hierarchical       rings inside hosts, rings between them            see there
    hierarchical-tree  rings inside hosts, double trees between them     see there
    all-to-all         every pair directly                               2(N-1)/N S/B, 2 latencies
    ps                 parameter servers on hosts of their own           2N/K S/B, 2 latencies
    ps-workers         parameter servers on workers                      2(N-1)/K S/B, 2 latencies
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from simulator.collectives._direct import all_to_all
from simulator.collectives._halving import halving_doubling
from simulator.collectives._hierarchical import hierarchical, hierarchical_tree
from simulator.collectives._ring import ring
from simulator.collectives._servers import parameter_server, serving, worker_servers
from simulator.collectives._step import Collective, Step
from simulator.collectives._tree import double_binary_tree
from simulator.errors import UnknownNameError

__all__ = [
    "COLLECTIVES",
    "UPDATES_ON_SERVER",
    "Collective",
    "Step",
    "all_to_all",
    "collective",
    "double_binary_tree",
    "halving_doubling",
    "hierarchical",
    "hierarchical_tree",
    "parameter_server",
    "ring",
    "serving",
    "worker_servers",
]

COLLECTIVES: Mapping[str, Collective] = {
    "ring": ring,
    "halving-doubling": halving_doubling,
    "tree": double_binary_tree,
    "hierarchical": hierarchical,
    "hierarchical-tree": hierarchical_tree,
    "all-to-all": all_to_all,
    "ps": parameter_server,
    "ps-workers": worker_servers,
}
UPDATES_ON_SERVER = frozenset({"ps", "ps-workers"})


def collective(name: str, servers: int | None = None) -> Collective:
    """The collective called `name`; `servers` is how many workers serve in ps-workers. Raises UnknownNameError."""
    if name not in COLLECTIVES:
        raise UnknownNameError.of("collective", name, COLLECTIVES)
    return partial(worker_servers, servers=servers) if name == "ps-workers" else COLLECTIVES[name]
