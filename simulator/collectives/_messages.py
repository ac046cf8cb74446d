"""A collective message by message: when each member ends if they begin at unequal times, over unequal links.

A member passes a piece on once it has it and once the piece before has left. Both are maxima and sums, so the ends
follow from the beginnings in a few numpy calls, without an event per message. It holds where the collective has its
links for itself; messages of one round that cross a link share it evenly (a measured curve says what it says, however
many cross).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.cluster import Cluster
from simulator.taskgraph import Floats, Ints

Edge = tuple[int, int]
_ROUNDING = 1e-12
"""Ends this close (relative) are equal: the same seconds summed in another order."""


def messages_s(cluster: Cluster, pairs: Sequence[Edge], size_bytes: float) -> Floats:
    """Of a message of `size_bytes` over each of `pairs`, when all go at once, the latency and the seconds of its bytes,
    shape (2, pairs)."""
    routes = [cluster.route(*pair) for pair in pairs]
    first = np.cumsum([0, *map(len, routes)])[:-1]
    crossed = np.array([link for route in routes for link in route], dtype=np.int64)  # (links of all routes,)
    crowd = np.bincount(crossed, minlength=len(cluster.links))
    bandwidths = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
    latencies = np.array([link.latency_s for link in cluster.links])
    slowest = np.maximum.reduceat((crowd / bandwidths)[crossed], first)  # (pairs,), seconds per byte
    seconds: Floats = np.stack([np.add.reduceat(latencies[crossed], first), size_bytes * slowest])
    measured = np.array([link.curve is not None for link in cluster.links])
    for number in np.flatnonzero(np.logical_or.reduceat(measured[crossed], first)).tolist():
        seconds[:, number] = 0.0, cluster.transfer_s(*pairs[number], size_bytes)
    return seconds


def ring_ends_s(begin_s: Floats, message_s: Floats) -> Floats:
    """When each of N members of a ring ends its all-reduce, shape (N,), in 2(N-1) rounds of a message each.

    message_s[i]: of a message into member i, from member i - 1. With x(0) = begin_s, round k gives
    x[i](k+1) = max(x[i-1](k), x[i](k)) + message_s[i]. Written out, the end at i is the largest, over where a chain of
    messages begins (j) and the slowest member q between j and i, at which all further rounds are spent, of

        begin_s[j] + sum of message_s[j+1 .. i] + (2(N-1) - (i - j)) x message_s[q]

    Chains through the slowest member of all come first; then those on either side of it, and so on, as long as they
    can be later than what stands.
    """
    n = len(begin_s)
    rounds = 2 * (n - 1)
    order = np.roll(np.arange(n), n - 1 - int(message_s.argmax()))  # the slowest member comes last
    begin, message = np.tile(begin_s[order], 2)[:-1], np.tile(message_s[order], 2)[:-1]  # twice around
    total = np.cumsum(message)
    ends = np.full(2 * n - 1, -np.inf)
    segments = [(0, 2 * n - 1)]
    while segments:
        low, high = segments.pop()
        at = n - 1 if low == 0 else low + int(message[low:high].argmax())
        slowest = message[at]
        if begin[low:high].max() + rounds * slowest <= ends[max(low, n - 1) : high].min() * (1 + _ROUNDING):
            continue
        before = total[low:high] - slowest * np.arange(low, high)  # of the segment's members, less what q would take
        latest = (begin[low : at + 1] - before[: at + 1 - low]).max()
        ends[at:high] = np.maximum(ends[at:high], latest + before[at - low :] + rounds * slowest)
        segments += [(a, b) for a, b in ((low, at), (at + 1, high)) if b > max(a, n - 1)]
    result = np.empty(n)
    result[order] = np.append(ends[n:], ends[n - 1])
    return result


def tree_ends_s(begin_s: Floats, parent: Ints, up_s: Floats, down_s: Floats) -> Floats:
    """When each of N members of a tree holds the sum, made on the way up to the root and sent down again, shape (N,).

    parent: of each member, -1 for the root. up_s, down_s: latency and seconds of the bytes from a member to its parent,
    and back, shape (2, N). Pieces are infinitely small: a member passes one up when it has it of all its children, and
    down when it has it. So the first arrives after the latency, the last when the bytes have gone or the sender's last
    has come, whichever is later.
    """

    def passed(has: Floats, latency_s: float, bytes_s: float) -> Floats:
        """When the first and the last piece have crossed an edge."""
        return np.array([has[0], max(has[1], has[0] + bytes_s)]) + latency_s

    order = _from_root(parent)
    has = np.repeat(begin_s[:, None], 2, axis=1)  # (members, first and last piece)
    for member in reversed(order[1:]):
        has[parent[member]] = np.maximum(has[parent[member]], passed(has[member], *up_s[:, member]))
    for member in order[1:]:
        has[member] = passed(has[parent[member]], *down_s[:, member])
    return has[:, 1]


def _from_root(parent: Ints) -> list[int]:
    """The members, each after its parent."""
    children: dict[int, list[int]] = {}
    for member, above in enumerate(parent.tolist()):
        children.setdefault(above, []).append(member)
    order = list(children[-1])
    for member in order:
        order += children.get(member, [])
    return order
