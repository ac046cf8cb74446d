"""What limits a step, by name and with the evidence: the chain that bound it, then the same step with more of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.network.transfers import link_work
from simulator.ordered_sum import ordered_sum
from simulator.report.critical_path import LAUNCHES, path_shares
from simulator.studies.what_if import Gain, gains_of
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline

WORTH_TRYING = 0.02
"""A resource with less than this share of the chain that bound the step is not doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The resource on the chain that bound the step of which more helps most, by simulation.

    resource: "compute" (workers), "server" or a tier of links; LAUNCHES where they are most of the chain. name: the one
    of its kind that was longest there. busy: the share of the step that the device computes, or its host launches, or
    of the link's capacity that is used. path_share: the share of the step that it is on the chain; kind_share: all of
    its kind together. gains: every resource on the chain, and the workers, doubled by itself, the most helpful first.
    """

    resource: str
    name: str
    busy: float
    path_share: float
    kind_share: float
    gains: tuple[Gain, ...]

    def __str__(self) -> str:
        """In words, such as "inter-node link a->b is busy 91% of the step and on the critical path for 78%; ..."."""
        words = f"{_title(self.resource)} {self.name} is busy {self.busy:.0%} of the step"
        words += f" and on the critical path for {self.path_share:.0%}"
        if self.kind_share > self.path_share + 0.005:
            words += f" ({self.kind_share:.0%} with others of its kind)"
        return f"{words}; {_promised(self.resource, self.gains)}"


def find_bottleneck(
    graph: TaskGraph, cluster: Cluster, timeline: Timeline, step_s: Callable[[Cluster], float]
) -> Evidence:
    """The Evidence of a simulated step of at least one task.

    `step_s` simulates the same step on another cluster; it is called twice or more for each resource on the chain.
    """
    shares = path_shares(graph, cluster, timeline)
    totals: dict[str, float] = {}
    for (resource, _), seconds in shares.items():
        totals[resource] = totals.get(resource, 0.0) + seconds
    longest = max(totals, key=lambda kind: totals[kind])
    tried = {kind for kind, seconds in totals.items() if seconds > WORTH_TRYING * timeline.step_s}
    gains = gains_of(step_s, cluster, tried | {"compute", longest})
    helps = (gain.resource for gain in gains if gain.resource in totals)
    resource = longest if longest == LAUNCHES else next(helps, longest)
    name = next(name for kind, name in shares if kind == resource)
    return Evidence(
        resource=resource,
        name=name,
        busy=_busy(graph, cluster, timeline, resource, name),
        path_share=shares[resource, name] / timeline.step_s,
        kind_share=totals[resource] / timeline.step_s,
        gains=tuple(gains),
    )


def _busy(graph: TaskGraph, cluster: Cluster, timeline: Timeline, resource: str, name: str) -> float:
    """The device's computing, its host's launches or the link's bytes, over what it could do in the step."""
    for number, device in enumerate(cluster.devices):
        if device.name == name:
            computed = (graph.route < 0) & (graph.device == number)
            seconds = graph.launch_s if resource == LAUNCHES else timeline.end_s - timeline.start_s
            return float(seconds[computed].sum()) / timeline.step_s
    numbers = [number for number, link in enumerate(cluster.links) if link.name == name]
    work, rates = link_work(graph, cluster), [link.bandwidth_bytes_per_s for link in cluster.links]
    return ordered_sum(float(work[number]) / (rates[number] * timeline.step_s) for number in numbers)


def _title(resource: str) -> str:
    titles = {"compute": "device", LAUNCHES: "host of", "inter": "inter-node link", "intra": "intra-node link"}
    return titles.get(resource, resource if resource in ("server", "link") else f"{resource} link")


def _promised(resource: str, gains: Sequence[Gain]) -> str:
    """What doubling brings: "twice its bandwidth would make the step 1.61x faster, devices twice as fast 1.08x"."""
    parts = [(_own(gain) if gain.resource == resource else gain.change, f"{gain.speedup:.2f}x") for gain in gains]
    if not parts:
        return "nothing else could be faster"
    (first, speedup), *others = parts
    return ", ".join([f"{first} would make the step {speedup} faster", *(f"{change} {x}" for change, x in others)])


def _own(gain: Gain) -> str:
    """The change as said of the bottleneck itself, with all of its kind."""
    if gain.resource in ("compute", "server"):
        return "twice its speed"
    return "half its latency" if "latency" in gain.change else "twice its bandwidth"
