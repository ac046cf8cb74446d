"""Which devices compute on the same cores of the same machine, whatever the cluster's file says of their hosts.

A machine is known by its kernel's boot id, so that network namespaces and containers of one machine are one machine.
Ranks that may use a core in common share all cores that any of them may use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.cluster import Cluster
from traces.lab.child_processes import usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreGroup:
    """Ranks of one machine that share `cores` cores."""

    ranks: tuple[int, ...]
    cores: int


def own_cores() -> tuple[str, list[int]]:
    """This machine, and the cores that this process may use."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else "", usable_cores()


def core_groups(by_rank: Sequence[tuple[str, Sequence[int]]]) -> list[CoreGroup]:
    """The groups of ranks, each given by its machine and the cores that it may use; together they hold every rank."""
    groups: list[tuple[str, set[int], list[int]]] = []
    for rank, (machine, cores) in enumerate(by_rank):
        joined = [group for group in groups if group[0] == machine and group[1] & set(cores)]
        groups = [group for group in groups if group not in joined]
        shared = set(cores).union(*(group[1] for group in joined))
        groups.append((machine, shared, sorted([rank, *(r for group in joined for r in group[2])])))
    return [CoreGroup(ranks=tuple(ranks), cores=len(cores)) for _, cores, ranks in sorted(groups, key=lambda g: g[2])]


def with_cores(cluster: Cluster, groups: Sequence[CoreGroup]) -> Cluster:
    """`cluster` whose devices share cores as its ranks do. A group keeps the host that its first device has."""
    devices, cores = list(cluster.devices), {}
    for group in groups:
        host = devices[group.ranks[0]].host
        while host in cores:  # ranks of one host that share no core compute on hosts of their own
            host += "'"
        cores[host] = float(group.cores)
        for rank in group.ranks:
            devices[rank] = replace(devices[rank], host=host)
    return replace(cluster, devices=tuple(devices), host_cores=cores)


def notes(cluster: Cluster, groups: Sequence[CoreGroup]) -> list[str]:
    """What a reader of `cluster` should know of its cores: more ranks than cores, or other cores than it says."""
    lines = []
    for group in groups:
        names = f"ranks {', '.join(map(str, group.ranks))}" if len(group.ranks) > 1 else f"rank {group.ranks[0]}"
        if len(group.ranks) > group.cores:
            lines.append(
                f"{names} share {group.cores} cores of one machine: they compute in turns, and so does a prediction"
            )
        hosts = list(dict.fromkeys(cluster.devices[rank].host for rank in group.ranks))
        stated = sum(cluster.host_cores.get(host, 0.0) for host in hosts)
        if stated and stated != group.cores:
            lines.append(f"{', '.join(hosts)} had {stated:g} cores in the cluster's file; {names} have {group.cores}")
    return lines
