"""Two-level all-reduce with double binary trees between the hosts.

As `hierarchical`, with double binary trees between the hosts: 2 S/B_between + 2 ceil(log2 n) x latency_between. For
n >= 4; see `double_binary_tree`. NCCL's trees are of this kind.
"""

from __future__ import annotations

from functools import partial

from simulator.collectives._collective import Collective
from simulator.collectives._two_levels import two_levels
from simulator.collectives.tree import double_binary_tree

COLLECTIVE = Collective(all_reduce=partial(two_levels, between=double_binary_tree))
