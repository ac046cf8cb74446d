"""Links that let some bytes pass at full speed after a rest, as traffic shapers of clouds and of Linux do.

A bucket of so many tokens fills at the link's rate; what is sent takes a token per byte, and waits where none is left.
A measured curve, which is measured after a rest, shows it as a knee: flat up to the bucket's depth, then rising.

    depth     median of  bytes - rate x seconds  over the points that took twice as long as the first, from which
              bytes and seconds count, at least 1; rate is the curve's
    later by  ((lacking + bytes - depth)+ - ((ahead + bytes - depth)+ - (ahead - depth)+)) / rate

The second is by how much a transfer takes longer than its curve says, lacking: tokens that earlier ones took and that
have not come back; ahead: what goes ahead of it in its batch, which the curve has counted. In a step the curve alone
holds for the first transfer after a rest; an all-reduce right after another finds an empty bucket.

Moving bytes takes core time where a timer lets one segment after the other pass (10 ns a byte and more at 300 Mbit/s).
What finds a token passes at once and takes next to none.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from simulator.cluster import Cluster, Link
from simulator.network.transfers import paths
from simulator.taskgraph import Floats, TaskGraph

KNEE = 2.0
"""A point beyond the knee took at least so many times as long as the first."""


def depths_bytes(cluster: Cluster) -> Floats:
    """Of the bucket of each link in bytes, (links,): 0 where its curve shows none; kept with the cluster."""
    return cluster.kept.get(
        depths_bytes, lambda: np.array([_depth_bytes(link) for link in cluster.links], dtype=np.float64)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """What buckets make of a graph's transfers, both of shape (tasks,), 0 for compute.

    later_s: seconds by which each takes longer than alone after a rest. paced_bytes: which found no token; at least 1
    of what has bytes, as without any it would be a receiver's word to the engines.
    """

    later_s: Floats
    paced_bytes: Floats


def shaped(graph: TaskGraph, cluster: Cluster, start_s: Floats, end_s: Floats) -> Shaped:
    """What finds which tokens in a timeline of the graph, whose step begins with full buckets."""
    depth, over = depths_bytes(cluster), paths(graph.routes, cluster, graph.kept)
    later, paced = np.zeros(len(graph)), graph.bytes.copy()
    tokens, known_s = depth.copy(), np.zeros(len(depth))
    rates = [link.curve.bytes_per_s if link.curve else link.bandwidth_bytes_per_s for link in cluster.links]
    transfers = np.flatnonzero(graph.is_transfer & (graph.bytes > 0))
    for task in transfers[np.argsort(start_s[transfers], kind="stable")].tolist():
        route, share = int(graph.route[task]), 0.0
        ahead = graph.routes[route].ahead_bytes or 0.0
        for entry in range(over.start[route], over.start[route + 1]):
            link, size = int(over.link[entry]), float(graph.bytes[task] * over.weight[entry])
            rate, begin_s = rates[link], max(start_s[task], known_s[link])
            tokens[link] = min(depth[link], tokens[link] + rate * (begin_s - known_s[link]))
            missed = _beyond(size, tokens[link])
            counted = _beyond(ahead + size, depth[link]) - _beyond(ahead, depth[link])
            later[task], share = max(later[task], (missed - counted) / rate), max(share, missed / size)
            known_s[link] = max(begin_s, end_s[task])
            gained = rate * (known_s[link] - begin_s)
            tokens[link] = min(depth[link], max(0.0, tokens[link] + gained - size))
        paced[task] = max(share * graph.bytes[task], min(graph.bytes[task], 1.0))
    return Shaped(later_s=later, paced_bytes=paced)


def _beyond(size: float, tokens: float) -> float:
    return max(0.0, size - tokens)


def _depth_bytes(link: Link) -> float:
    if link.curve is None:
        return 0.0
    (first_bytes, first_s), *points = link.curve.points
    rate = link.curve.bytes_per_s
    beyond = [size - first_bytes - rate * (s - first_s) for size, s in points if s >= KNEE * first_s]
    depth = statistics.median(beyond) if beyond else 0.0
    return depth if 1.0 <= depth <= points[-1][0] else 0.0
