"""Double binary tree all-reduce."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives._collective import Collective, CollectiveTask, both_ways
from simulator.collectives._messages import messages_s, tree_ends_s
from simulator.taskgraph import Floats, Route


def double_binary_tree(cluster: Cluster, group: Sequence[int], size_bytes: float) -> list[CollectiveTask]:
    """Two trees, each reducing and broadcasting half of the bytes: 2 S/B + 2 ceil(log2 N) x latency for N >= 4.

    Sanders, Speck and Träff, Parallel Computing 35(12), 2009; NCCL since 2.4. Who is inner node of one tree is
    (but for the root) leaf of the other, so at most four edges of S/2, each both ways, meet at a device; with
    2 devices it is two of them and with 3 three, which gives S/B and 3/2 S/B. Chunks are counted as
    infinitely small, and going up and down the tree overlap, since links carry both directions at once.
    """
    members = tuple(group)
    pairs = both_ways([(members[a], members[b]) for edges in _two_trees(len(group)) for a, b in edges])
    route = Route(pairs, rounds=2 * (len(group) - 1).bit_length())
    return [CollectiveTask(route=route, bytes=size_bytes / 2, needs=members, delivers=members)]


def tree_ends(
    cluster: Cluster, group: Sequence[int], size_bytes: float, begin_s: Floats, message_overhead_s: float = 0.0
) -> Floats:
    """When each member has both halves of the sum, shape (N,), each a message over every edge up and down."""
    trees = _two_trees(len(group))
    pairs = both_ways([(group[a], group[b]) for edges in trees for a, b in edges])
    messages = messages_s(cluster, pairs, size_bytes / 2)
    messages[0] += message_overhead_s
    by_tree = messages.reshape(2, 2, -1, 2)  # (latency and bytes, trees, edges, up and down)
    ends = []
    for edges, message_s in zip(trees, by_tree.swapaxes(0, 1), strict=True):
        child, above = np.array(edges).T
        parent, up_s, down_s = np.full(len(group), -1), *np.zeros((2, 2, len(group)))
        parent[child], up_s[:, child], down_s[:, child] = above, message_s[..., 0], message_s[..., 1]
        ends.append(tree_ends_s(begin_s + message_overhead_s, parent, up_s, down_s))
    return np.maximum(*ends)


def _two_trees(n: int) -> list[list[tuple[int, int]]]:
    """The edges (child, parent) of both trees: who is inner node of one is leaf of the other."""
    edges = _tree_edges(n)
    other = [(n - 1 - a, n - 1 - b) for a, b in edges] if n % 2 == 0 else [((a + 1) % n, (b + 1) % n) for a, b in edges]
    return [edges, other]


def _tree_edges(n: int) -> list[tuple[int, int]]:
    """(child, parent) of a tree of depth ceil(log2 n) in which odd numbers are leaves and 0, the root, has one child.

    0 -> 4 -> 2 -> 1, 3        for n = 8: subtrees hang at powers of two
              6 -> 5, 7
    """

    def edges(low: int, high: int, parent: int) -> list[tuple[int, int]]:
        """The subtree over low <= number < high, where low is odd."""
        if low >= high:
            return []
        step = 1 << ((high - low).bit_length() - 1)
        middle = low - 1 + step
        return [(middle, parent), *edges(low, middle, middle), *edges(middle + 1, high, middle)]

    return edges(1, n, 0)


COLLECTIVE = Collective(all_reduce=double_binary_tree, ends=tree_ends)
