"""What limits a step, by name and with the evidence: the chain that bound it, then the same step with more of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.cluster import Cluster
from simulator.critical import path_shares
from simulator.metrics import link_bytes
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline
from simulator.whatif import Gain, gains_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The resource with the largest share of the chain that bound the step, and what more of it would bring.

    resource: "compute" (workers), "server" or a tier of links; name: the one of them that was longest on the chain.
    busy: the share of the step that the device computes, or of the link's capacity that is used. path_share: the
    share of the step that it is on the chain. gains: the resource doubled, and the workers' speed doubled.
    """

    resource: str
    name: str
    busy: float
    path_share: float
    gains: tuple[Gain, ...]

    @property
    def confirmed(self) -> bool:
        """Whether doubling this resource helps most, by simulation."""
        return bool(self.gains) and self.gains[0].resource == self.resource

    def __str__(self) -> str:
        where = f"{self.busy:.0%} of the step and on the critical path for {self.path_share:.0%}"
        return f"{_title(self.resource)} {self.name} is busy {where}; {_promised(self.gains)}"


def find_bottleneck(
    graph: TaskGraph, cluster: Cluster, timeline: Timeline, step_s: Callable[[Cluster], float]
) -> Evidence:
    """The Evidence of a simulated step; `step_s` simulates the same step on another cluster, and is called for
    each doubled resource."""
    shares = path_shares(graph, cluster, timeline)
    totals: dict[str, float] = {}
    for (resource, _), seconds in shares.items():
        totals[resource] = totals.get(resource, 0.0) + seconds
    resource = max(totals, key=lambda kind: totals[kind], default="compute")
    name, spent = max(
        ((name, seconds) for (kind, name), seconds in shares.items() if kind == resource),
        key=lambda pair: pair[1],
        default=("", 0.0),
    )
    return Evidence(
        resource=resource,
        name=name,
        busy=_busy(graph, cluster, timeline, name),
        path_share=spent / timeline.step_s if timeline.step_s else 0.0,
        gains=tuple(gains_of(step_s, cluster, {resource, "compute"})),
    )


def _busy(graph: TaskGraph, cluster: Cluster, timeline: Timeline, name: str) -> float:
    if not timeline.step_s:
        return 0.0
    for number, device in enumerate(cluster.devices):
        if device.name == name:
            mine = (graph.route < 0) & (graph.device == number)
            return float((timeline.end_s - timeline.start_s)[mine].sum()) / timeline.step_s
    rates = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
    used = link_bytes(graph, cluster) / (rates * timeline.step_s)
    return float(sum(share for link, share in zip(cluster.links, used, strict=True) if link.name == name))


def _title(resource: str) -> str:
    titles = {"compute": "GPU", "server": "server", "inter": "inter-node link", "intra": "intra-node link"}
    return titles.get(resource, f"{resource} link")


def _promised(gains: tuple[Gain, ...]) -> str:
    """ "twice its bandwidth would make the step 1.61x faster, twice the GPU speed 1.08x"."""
    parts = [f"{_change(gain)} {gain.speedup:.2f}x" for gain in gains]
    first, *others = parts or ["nothing"]
    change, _, speedup = first.rpartition(" ")
    return ", ".join([f"{change} would make the step {speedup} faster", *others])


def _change(gain: Gain) -> str:
    if gain.resource == "compute":
        return "twice the GPU speed"
    if gain.resource == "server":
        return "twice its speed"
    return "half its latency" if "latency" in gain.change else "twice its bandwidth"
