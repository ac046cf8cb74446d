"""How long a step takes at least where the links of a tier give no more than the low end of their measured band."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.network.transfers import paths, shared_part
from simulator.report.resource_use import tiers_and_bandwidths
from simulator.taskgraph import Floats, TaskGraph
from simulator.timeline import Timeline


def share_band(cluster: Cluster, tier: str) -> tuple[float, float] | None:
    """The least and the most that links of `tier` give, over what they give here; None where none has a band."""
    return cluster.kept.get((share_band, tier), lambda: _share_band(cluster, tier))


def _share_band(cluster: Cluster, tier: str) -> tuple[float, float] | None:
    shares = {link.achieved for link in cluster.links if link.tier == tier and link.achieved is not None}
    ends = [(share.low / share.median, share.high / share.median) for share in shares]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def slow_links_s(graph: TaskGraph, cluster: Cluster, timeline: Timeline, work: Floats) -> Floats:
    """By tier, shape (tiers,); 0 for one without a band. work: `link_work` of the graph.

    No transfer begins earlier on slower links, and what crosses the busiest link from then on goes through it: the most
    of when a transfer begins and the seconds of it and of all later ones.
    """
    over, (tiers, bandwidths) = paths(graph.routes, cluster, graph.kept), tiers_and_bandwidths(cluster)
    full_s, sent_bytes = work / bandwidths, graph.bytes * shared_part(graph, cluster, over)
    route_of, slow_s = np.repeat(np.arange(len(graph.routes)), np.diff(over.start)), np.zeros(len(tiers))
    for position, (tier, links) in enumerate(tiers.items()):
        band, busiest = share_band(cluster, tier), links[np.argmax(full_s[links])]
        if band is None or not full_s[busiest]:
            continue
        crossed = np.flatnonzero(over.link == busiest)
        load = np.bincount(route_of[crossed], weights=over.load[crossed], minlength=len(graph.routes) + 1)
        tasks = np.flatnonzero(load[graph.route] > 0)  # a compute task's route is -1, the last entry
        tasks = tasks[np.argsort(-timeline.start_s[tasks], kind="stable")]
        left_s = np.cumsum(sent_bytes[tasks] * load[graph.route[tasks]]) / (bandwidths[busiest] * band[0])
        slow_s[position] = (timeline.start_s[tasks] + left_s).max()
    return slow_s
