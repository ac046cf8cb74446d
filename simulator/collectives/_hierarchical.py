"""Two-level all-reduce: inside each host, between hosts, inside again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from simulator.cluster import Cluster
from simulator.collectives._ring import around, ring
from simulator.collectives._step import Collective, Step
from simulator.collectives._tree import double_binary_tree
from simulator.taskgraph import Route

Hosts = list[tuple[int, ...]]


def hierarchical(cluster: Cluster, group: Sequence[int], size_bytes: float, update_s: float = 0.0) -> list[Step]:
    """Rings inside each host and between hosts, as Horovod's hierarchical all-reduce with NCCL.

    With n hosts of g devices: a ring reduce-scatter inside, which leaves each device S/g; g rings at once between
    the hosts, which share their wires; a ring all-gather inside:

        2(g-1)/g x S/B_inside + 2(g-1) x latency_inside + 2(n-1)/n x S/B_between + 2(n-1) x latency_between

    where B_between is what a host has for all its devices. When hosts have different numbers of devices, the first
    of each stands for it: gradients are summed along a chain towards it and the result comes back the same way,
    in S/B_inside + (g-1) x latency_inside each, and one ring joins the hosts.
    """
    return _two_levels(cluster, group, size_bytes, ring)


def hierarchical_tree(cluster: Cluster, group: Sequence[int], size_bytes: float, update_s: float = 0.0) -> list[Step]:
    """As `hierarchical`, with double binary trees between the hosts: 2 S/B_between + 2 ceil(log2 n) x latency_between.

    For n >= 4; see `double_binary_tree`. NCCL's trees are of this kind.
    """
    return _two_levels(cluster, group, size_bytes, double_binary_tree)


def _two_levels(cluster: Cluster, group: Sequence[int], size_bytes: float, between: Collective) -> list[Step]:
    hosts: dict[str, tuple[int, ...]] = {}
    for device in group:
        name = cluster.devices[device].host
        hosts[name] = (*hosts.get(name, ()), device)
    homes = list(hosts.values())
    if len(homes) in (1, len(group)):
        return (ring if len(homes) == 1 else between)(cluster, group, size_bytes, 0.0)
    return _sharded(cluster, homes, size_bytes, between) if _alike(homes) else _led(cluster, homes, size_bytes, between)


def _alike(homes: Hosts) -> bool:
    return len({len(members) for members in homes}) == 1


def _sharded(cluster: Cluster, homes: Hosts, size_bytes: float, between: Collective) -> list[Step]:
    """Every device stands for its host with 1/g of the bytes."""
    g = len(homes[0])
    inside = [(Route(around(members), rounds=g - 1), (g - 1) / g * size_bytes) for members in homes]
    columns = [between(cluster, column, size_bytes / g, 0.0)[0] for column in zip(*homes, strict=True)]
    return _joined(homes, inside, _together(columns), inside)


def _led(cluster: Cluster, homes: Hosts, size_bytes: float, between: Collective) -> list[Step]:
    """The first device of each host stands for it."""
    up = [(Route(tuple((b, a) for a, b in pairwise(m)), rounds=len(m) - 1), size_bytes) for m in homes]
    down = [(Route(tuple(pairwise(m)), rounds=len(m) - 1), size_bytes) for m in homes]
    return _joined(homes, up, between(cluster, [m[0] for m in homes], size_bytes, 0.0)[0], down)


def _together(steps: Sequence[Step]) -> Step:
    """Steps of one kind on disjoint devices as one, all at one pace."""
    routes = [step.route for step in steps if step.route]
    return replace(steps[0], route=Route(tuple(p for route in routes for p in route.pairs), rounds=routes[0].rounds))


def _joined(homes: Hosts, up: list[tuple[Route, float]], between: Step, down: list[tuple[Route, float]]) -> list[Step]:
    """In every host `up`, then `between` them, then `down`."""
    n = len(homes)
    steps = [Step(route=route, bytes=size, needs=members) for (route, size), members in zip(up, homes, strict=True)]
    steps.append(replace(between, after=tuple(range(n)), needs=(), delivers=()))
    return steps + [
        Step(route=route, bytes=size, after=(n,), delivers=members)
        for (route, size), members in zip(down, homes, strict=True)
    ]
