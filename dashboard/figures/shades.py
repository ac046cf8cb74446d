"""Colours of devices: the node is the hue, the device its lightness; from five nodes on Cividis by node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dashboard.state.device_groups import device_groups
from simulator.cluster import Cluster

MOST_HUES = 4
MOST_BARS = 16
_HUES = (("#1f4e86", "#a9cbef"), ("#c8920a", "#f3e2ad"), ("#6a3d8f", "#d5bfe6"), ("#4a4f58", "#c9ced6"))
CIVIDIS = ("#00204d", "#31446b", "#666970", "#958f78", "#cab969", "#ffea46")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shades:
    """colours: of every worker. node: the number of every worker's node. nodes: their names, in order.

    bars: the workers behind each bar of a row of bars: each alone, or those of a node, or of several nodes.
    """

    colours: tuple[str, ...]
    node: tuple[int, ...]
    nodes: tuple[str, ...]
    bars: tuple[tuple[int, ...], ...]

    @property
    def by_node(self) -> bool:
        """Whether devices of a node look alike."""
        return len(self.nodes) > MOST_HUES

    @property
    def bar_words(self) -> str:
        """What one bar stands for."""
        if len(self.bars) == len(self.node):
            return "device"
        size = -(-len(self.nodes) // len(self.bars))
        return "node" if size == 1 else f"{size} nodes"


def shades_of(cluster: Cluster) -> Shades:
    """The colours of a cluster's workers."""
    workers = cluster.devices[: cluster.workers]
    nodes = tuple(dict.fromkeys(device.host for device in workers))
    index = {name: number for number, name in enumerate(nodes)}
    node = tuple(index[device.host] for device in workers)
    if len(nodes) > MOST_HUES:
        colours = tuple(_between(CIVIDIS, number / (len(nodes) - 1)) for number in node)
    else:
        size = [node.count(number) for number in range(len(nodes))]
        rank = [node[:i].count(number) for i, number in enumerate(node)]
        colours = tuple(_between(_HUES[number], rank[i] / max(size[number] - 1, 1)) for i, number in enumerate(node))
    bars = tuple(group.devices for group in device_groups(cluster, servers=False, most=MOST_BARS))
    return Shades(colours=colours, node=node, nodes=nodes, bars=bars)


def _between(stops: tuple[str, ...], at: float) -> str:
    """The colour at a share of the way along equally spaced stops."""
    stop = min(max(at, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(stop), len(stops) - 2)
    ends = [np.array([int(stops[i][k : k + 2], 16) for k in (1, 3, 5)]) for i in (low, low + 1)]
    mixed = ends[0] + (ends[1] - ends[0]) * (stop - low)
    return "#" + "".join(f"{round(float(part)):02x}" for part in mixed)
