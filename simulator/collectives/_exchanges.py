"""What a group of devices does with a tensor that moves as a whole: gather it, sum and scatter it, transpose it.

Each is one task at the pace of its slowest pair. Where the cluster has a library or measured curves, these say what it
takes (`simulator.network.collective_times`); sizes are those of the whole tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations

from simulator.collectives._collective import CollectiveTask
from simulator.collectives.ring import around
from simulator.errors import UnknownNameError
from simulator.network.collective_times import HALVES, sent_share
from simulator.taskgraph import Route


def exchange(name: str, group: Sequence[int], size_bytes: float) -> tuple[Route, float]:
    """(route, bytes over each of its pairs) of a collective for a tensor of `size_bytes` in all.

        all-reduce                    2(n-1)/n x S/B + 2(n-1) x latency
        all-gather, reduce-scatter    (n-1)/n x S/B + (n-1) x latency: half a ring all-reduce
        all-to-all                    (n-1)/n^2 x S/B + latency: each device sends 1/n of its share to each other
        broadcast                     S/B + (n-1) x latency, from device to device

    Raises UnknownNameError.
    """
    members, n = tuple(group), len(group)
    if name in HALVES:
        pairs, rounds = around(members), HALVES[name] * (n - 1)
    elif name == "all-to-all":
        pairs, rounds = tuple(permutations(members, 2)), 1
    elif name == "broadcast":
        pairs, rounds = tuple(pairwise(members)), n - 1
    else:
        raise UnknownNameError.of("collective", name, (*HALVES, "all-to-all", "broadcast"))
    return Route(pairs, rounds=rounds, collective=name), sent_share(name, n) * size_bytes


def sum_and_give(holders: Sequence[int], targets: Sequence[int], size_bytes: float) -> list[CollectiveTask]:
    """Messages that sum what `holders` have and leave it on `targets`: rules 4 and 5 of `lowering.exchange.reshard`.

    The way of groups that no collective fits: (g + t - 2) x size_bytes, one more where they share no device.
    """
    owners = sorted({*holders} & {*targets}) or sorted(targets)
    part = size_bytes / len(owners)
    tasks: list[CollectiveTask] = []
    for owner in owners:
        first = len(tasks)
        tasks += [
            CollectiveTask(route=Route(((device, owner),)), bytes=part, needs=(device,), delivers=(owner,))
            for device in holders
            if device != owner
        ]
        summed = tuple(range(first, len(tasks)))
        own = (owner,) if owner in holders else ()
        tasks += [
            CollectiveTask(route=Route(((owner, device),)), bytes=part, after=summed, needs=own, delivers=(device,))
            for device in targets
            if device != owner
        ]
    return tasks


def scattered_sum(shard_groups: Sequence[tuple[int, ...]], size_bytes: float) -> list[CollectiveTask]:
    """A sum over equal groups that leaves slice i with the i-th device of each: (n - 1 + n/z - 1) x size_bytes.

    A reduce-scatter in each group of z devices, then, with several groups, all-reduces of the slices between them, all
    at once and at one pace (ZeRO: Rajbhandari et al., SC 2020, section 7; hybrid: Zhao et al., VLDB 2023).
    """
    tasks: list[CollectiveTask] = []
    z, everybody = len(shard_groups[0]), tuple(sorted(device for group in shard_groups for device in group))
    for members in shard_groups if z > 1 else ():
        route, sent_bytes = exchange("reduce-scatter", members, size_bytes)
        ends = members if len(shard_groups) == 1 else ()
        tasks.append(CollectiveTask(route=route, bytes=sent_bytes, needs=members, delivers=ends))
    if len(shard_groups) == 1:
        return tasks
    columns = [exchange("all-reduce", column, size_bytes / z) for column in zip(*shard_groups, strict=True)]
    route, sent_bytes = columns[0]
    route = replace(route, pairs=tuple(pair for column, _ in columns for pair in column.pairs))
    after, needs = tuple(range(len(tasks))), everybody if z == 1 else ()
    return [*tasks, CollectiveTask(route=route, bytes=sent_bytes, after=after, needs=needs, delivers=everybody)]
