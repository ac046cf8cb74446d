"""From what ranks measured to a Cluster and a Runtime: curves of bytes -> seconds, core time per byte, waits.

    message      half of a message there and one back between two devices whose receives are posted, on connections of
                 their own: send, receive, and everything that a rank waits for
    collectives  all-reduce, all-gather and reduce-scatter of the first N devices, each in one call; the slowest rank's
                 time. Bytes are those of the whole tensor
    core time    what compute loses beside a one-way stream, at the sender and at the receiver, per byte
    round wait   by how much each round of an all-reduce takes longer where its ranks compute
    pass         by how much passes over a stage take longer in torch's pipelines, on the first two devices

Links of equal tier, bandwidth and latency are alike: one pair of devices is measured for every kind of route.

Which devices compute on the same cores of the same machine is found out, too, whatever the cluster's file says of their
hosts. A machine is known by its kernel's boot id, so that network namespaces and containers of one machine are one.
Ranks that may use a core in common share all cores that any of them may use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

from simulator.cluster import Cluster, Link
from simulator.errors import require
from simulator.runtime import TORCH_PIPELINING, Runtime
from traces.calibrate.median_calibration import Points, band_of, curve_of, typical_mean
from traces.capture import machine_settings
from traces.capture.machine_settings import largest, stolen_words
from traces.capture.measurement_rounds import spread
from traces.lab.launch import launch
from traces.lab.shaped_network import Lab

SIZES_BYTES = (4, 64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measurement of links: by device pair, and by collective and number of devices.

    send_s_per_byte, receive_s_per_byte: core seconds. round_wait_s: what a round waits where its ranks compute. cores:
    which ranks share which cores. stolen_share: the largest share of core time that a rank's machine lost to its host,
    None where no machine says.
    """

    messages: Mapping[tuple[int, int], Points]
    collectives: Mapping[str, Mapping[int, Points]]
    send_s_per_byte: float
    receive_s_per_byte: float
    round_wait_s: float
    cores: Sequence[CoreGroup] = ()
    stolen_share: float | None = None


def calibrate(
    cluster: Cluster,
    lab: Lab | None = None,
    *,
    sizes_bytes: Sequence[int] | None = None,
    counts: Sequence[int] | None = None,
    collectives: Sequence[str] = COLLECTIVES,
    cores: Sequence[Sequence[int]] = (),
) -> tuple[Cluster, Runtime]:
    """`cluster` with measured curves on its links and for collectives, with what was measured where in `sources`.

    lab: the lab of this cluster; None measures loopback. sizes_bytes: SIZES_BYTES by default. counts: numbers of
    devices for the collectives, by default 2, 4, ... up to all. cores: as for `launch`; calibrate as you will
    run. A link's bandwidth becomes what a long message gets of it, its latency its share of the shortest message's
    time. Raises RunError when a rank fails.
    """
    task = probe_arguments(cluster, sizes_bytes, counts, collectives)
    target, count = "traces.calibrate.link_probe:measure", len(cluster.devices)
    by_rank = launch(target, count, lab=lab, arguments=task, timeout_s=600, cores=cores)
    where = "in a network lab of this machine" if lab else "over loopback, unshaped"
    return apply(cluster, measurement_of_ranks(task, by_rank), where)


def apply(cluster: Cluster, measurement: Measurement, where: str) -> tuple[Cluster, Runtime]:
    """`cluster` with the measured curves, and the runtime; `where` goes into the cluster's sources."""
    kinds: dict[tuple[Any, ...], Link] = {}
    for pair, points in measurement.messages.items():
        _learn(cluster, pair, points, kinds)
    links = tuple(kinds.get(_kind(link), link).between(link.source, link.target) for link in cluster.links)
    curves = {
        name: {count: curve_of(points) for count, points in of_counts.items()}
        for name, of_counts in measurement.collectives.items()
        if of_counts
    }
    runtime = replace(
        TORCH_PIPELINING,
        name="torch over gloo",
        send_cpu_s_per_byte=measurement.send_s_per_byte,
        receive_cpu_s_per_byte=measurement.receive_s_per_byte,
        busy_latency_s=measurement.round_wait_s,
    )
    measured = replace(
        cluster,
        links=links,
        library=None,
        collectives={**cluster.collectives, **curves},
        sources=(*cluster.sources, *_sources(cluster, measurement, where)),
    )
    return with_cores(measured, measurement.cores) if measurement.cores else measured, runtime


def probe_arguments(
    cluster: Cluster,
    sizes_bytes: Sequence[int] | None = None,
    counts: Sequence[int] | None = None,
    collectives: Sequence[str] = COLLECTIVES,
) -> dict[str, Any]:
    """The arguments of `link_probe.measure`: what to measure on this cluster. Raises InputError."""
    total = len(cluster.devices)
    require(total >= 2, "devices", total, "there is something to send to: at least 2")
    wanted = [n for n in (2, 4, 8, 16, 32, 64, 128) if n < total] + [total] if counts is None else list(counts)
    require(all(2 <= n <= total for n in wanted), "counts", wanted, f"each is in 2 to {total}, the devices there are")
    sizes = sorted(set(SIZES_BYTES if sizes_bytes is None else sizes_bytes))
    require(len(sizes) >= 2, "sizes_bytes", sizes, "a curve needs at least 2")
    pairs = _pairs(cluster)
    rates = [min(cluster.bandwidth_bytes_per_s(*pair), 1e10) for pair in pairs]
    return {"pairs": pairs, "counts": wanted, "collectives": list(collectives), "sizes": sizes, "rates": rates}


def _pairs(cluster: Cluster) -> list[tuple[int, int]]:
    """One pair of devices for every kind of route, short routes first."""
    pairs: dict[tuple[Any, ...], tuple[int, int]] = {}
    for a, b in permutations(range(len(cluster.devices)), 2):
        pairs.setdefault(tuple(_kind(cluster.links[i]) for i in cluster.route(a, b)), (a, b))
    return [pairs[kinds] for kinds in sorted(pairs, key=len)]


def _kind(link: Link) -> tuple[Any, ...]:
    return link.tier, link.bandwidth_bytes_per_s, link.latency_s


def measurement_of_ranks(task: Mapping[str, Any], by_rank: Sequence[Mapping[str, Any]]) -> Measurement:
    """What all ranks measured as one measurement; by_rank: what each returned, in the order of ranks."""
    sizes = task["sizes"]
    messages = {
        tuple(pair): [_point(size, by_rank[pair[0]]["messages"][i][k]) for k, size in enumerate(sizes)]
        for i, pair in enumerate(task["pairs"])
    }
    collectives = {
        name: {
            n: [
                _point(size, _slowest([by_rank[r]["collectives"][name][i][k] for r in range(n)]))
                for k, size in enumerate(sizes)
            ]
            for i, n in enumerate(task["counts"])
        }
        for name in task["collectives"]
    }
    return Measurement(
        messages=messages,
        collectives=collectives,
        send_s_per_byte=typical_mean(by_rank[0]["lost_s_per_byte"]),
        receive_s_per_byte=typical_mean(by_rank[1]["lost_s_per_byte"]),
        round_wait_s=max(typical_mean([wait for each in by_rank for wait in each["round_waits_s"]]), 0.0),
        cores=core_groups([each["cores"] for each in by_rank]),
        stolen_share=largest(each["stolen_share"] for each in by_rank),
    )


def _slowest(repetitions: Sequence[Sequence[float]]) -> list[float]:
    return [max(times) for times in zip(*repetitions, strict=True)]


def _point(size: int, seconds: Sequence[float]) -> tuple[float, float, float]:
    return size, typical_mean(seconds), spread(seconds)


def _learn(cluster: Cluster, pair: tuple[int, int], points: Points, kinds: dict[tuple[Any, ...], Link]) -> None:
    """Add the kinds of link on a pair's route that no shorter route had, with bandwidth, latency and curve measured."""
    route = [cluster.links[i] for i in cluster.route(*pair)]
    new = [link for link in route if _kind(link) not in kinds]
    known_s = sum(kinds[_kind(link)].latency_s for link in route if _kind(link) in kinds)
    curve = curve_of(points)
    share = curve.bytes_per_s / min(link.bandwidth_bytes_per_s for link in route)
    for link in new:
        kinds[_kind(link)] = replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * share,
            latency_s=max(curve.points[0][1] - known_s, 0.0) / len(new),
            curve=curve,
            line_rate_bytes_per_s=None,
            message_bytes_per_s=None,
            achieved=band_of(points),
        )


def _sources(cluster: Cluster, measurement: Measurement, where: str) -> tuple[str, ...]:
    largest = max(points[-1][0] for points in measurement.messages.values())
    measured = (
        f"measured {datetime.now(UTC):%Y-%m-%d} {where}, gloo, {machine_settings.device_name()} per rank, "
        f"{os.cpu_count()} cores in all; {machine_settings.versions()}; means of up to {largest / 1e6:.3g} MB"
    )
    stolen = stolen_words(measurement.stolen_share)
    return measured, *([stolen] if stolen else []), *notes(cluster, measurement.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreGroup:
    """Ranks of one machine that share `cores` cores."""

    ranks: tuple[int, ...]
    cores: int


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
