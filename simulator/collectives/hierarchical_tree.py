"""Two-level all-reduce with double binary trees between the hosts."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cluster import Cluster
from simulator.collectives._collective import Collective, CollectiveTask
from simulator.collectives._two_levels import two_levels
from simulator.collectives.tree import double_binary_tree


def hierarchical_tree(cluster: Cluster, group: Sequence[int], size_bytes: float) -> list[CollectiveTask]:
    """As `hierarchical`, with double binary trees between the hosts: 2 S/B_between + 2 ceil(log2 n) x latency_between.

    For n >= 4; see `double_binary_tree`. NCCL's trees are of this kind.
    """
    return two_levels(cluster, group, size_bytes, double_binary_tree)


COLLECTIVE = Collective(all_reduce=hierarchical_tree)
