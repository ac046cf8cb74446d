"""Measure the links of a cluster with the backend that will use them: curves of bytes -> seconds, CPU per byte.

    message      half of a ping-pong between two devices: send, receive, and everything that a rank waits for
    all-reduce   of the first N devices, in one call, as DDP makes for a bucket; the slowest rank's time
    CPU          seconds that the sending and the receiving process compute per byte of a one-way stream

Links of equal tier, bandwidth and latency are alike: one pair of devices is measured for every kind of route. Run

    sudo python -m traces.calibrate.links CLUSTER -o OUT.yaml                                 in a network lab
    torchrun --nnodes 2 ... -m traces.calibrate.links CLUSTER -o OUT.yaml                     on the hosts it runs on
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from simulator import files
from simulator.cluster import Cluster, Curve, Link
from simulator.errors import require
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.runtime import Runtime
from traces.calibrate.link_probe import measure
from traces.capture import machine_settings
from traces.capture.measurement_rounds import median, spread
from traces.lab import namespaces
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab

SIZES_BYTES = (4, 64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
_DESCRIPTION = """
Measure the links of a cluster, in a network lab of this machine shaped like it (needs root and iproute2, else
loopback without shaping) or between the hosts that torchrun started it on, and write the cluster with the curves.
"""

Points = Sequence[tuple[float, float, float]]
"""(bytes, median seconds, interquartile range in seconds) by size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measurement of links: by device pair and by number of devices, and the CPU seconds per byte of each side.

    busy_latency_s: by how much each round takes longer where its ranks compute. spread: the largest interquartile
    range over median at the largest size.
    """

    messages: Mapping[tuple[int, int], Points]
    all_reduces: Mapping[int, Points]
    send_cpu_s_per_byte: float
    receive_cpu_s_per_byte: float
    busy_latency_s: float
    spread: float


def calibrate(
    cluster: Cluster,
    lab: Lab | None = None,
    *,
    sizes_bytes: Sequence[int] | None = None,
    counts: Sequence[int] | None = None,
    cores: Sequence[Sequence[int]] = (),
    timeout_s: float = 600.0,
) -> tuple[Cluster, Runtime]:
    """`cluster` with measured curves on its links and for all-reduce, with what was measured where in `sources`.

    lab: the lab of this cluster; None measures loopback. sizes_bytes: SIZES_BYTES by default. counts: numbers of
    devices to all-reduce among, by default 2, 4, ... up to all. cores: as for `launch`; calibrate as you will
    run. A link's bandwidth becomes what a long message gets of it, its latency its share of the shortest message's
    time. Raises RunError when a rank fails.
    """
    task = _task(cluster, sizes_bytes, counts)
    by_rank = launch(
        "traces.calibrate.link_probe:measure",
        len(cluster.devices),
        lab=lab,
        arguments=task,
        timeout_s=timeout_s,
        cores=cores,
    )
    where = "in a network lab of this machine" if lab else "over loopback, unshaped"
    return apply(cluster, _measurement(task, by_rank), where)


def apply(cluster: Cluster, measurement: Measurement, where: str) -> tuple[Cluster, Runtime]:
    """`cluster` with the measured curves, and the runtime; `where` goes into the cluster's sources."""
    kinds: dict[tuple[Any, ...], Link] = {}
    for pair, points in measurement.messages.items():
        _learn(cluster, pair, points, kinds)
    links = tuple(
        replace(
            link,
            bandwidth_bytes_per_s=kinds[_kind(link)].bandwidth_bytes_per_s,
            latency_s=kinds[_kind(link)].latency_s,
            curve=kinds[_kind(link)].curve,
        )
        if _kind(link) in kinds
        else link
        for link in cluster.links
    )
    reduces = {count: _curve(points) for count, points in measurement.all_reduces.items()}
    collectives = {**cluster.collectives, **({"all_reduce": reduces} if reduces else {})}
    runtime = Runtime(
        name="gloo",
        send_cpu_s_per_byte=measurement.send_cpu_s_per_byte,
        receive_cpu_s_per_byte=measurement.receive_cpu_s_per_byte,
        busy_latency_s=measurement.busy_latency_s,
    )
    sources = (*cluster.sources, *_sources(measurement, where))
    return replace(cluster, links=links, collectives=collectives, sources=sources), runtime


def _task(cluster: Cluster, sizes_bytes: Sequence[int] | None, counts: Sequence[int] | None) -> dict[str, Any]:
    """The arguments of `measure`: what to measure on this cluster."""
    total = len(cluster.devices)
    require(total >= 2, "devices", total, "there is something to send to: at least 2")
    wanted = [n for n in (2, 4, 8, 16, 32, 64, 128) if n < total] + [total] if counts is None else list(counts)
    require(all(2 <= n <= total for n in wanted), "counts", wanted, f"each is in 2 to {total}, the devices there are")
    sizes = sorted(set(SIZES_BYTES if sizes_bytes is None else sizes_bytes))
    require(len(sizes) >= 2, "sizes_bytes", sizes, "a curve needs at least 2")
    pairs = _pairs(cluster)
    rates = [min(cluster.bandwidth_bytes_per_s(*pair), 1e10) for pair in pairs]
    return {"pairs": pairs, "counts": wanted, "sizes": sizes, "rates": rates}


def _pairs(cluster: Cluster) -> list[tuple[int, int]]:
    """One pair of devices for every kind of route, short routes first."""
    pairs: dict[tuple[Any, ...], tuple[int, int]] = {}
    for a, b in permutations(range(len(cluster.devices)), 2):
        pairs.setdefault(tuple(_kind(cluster.links[i]) for i in cluster.route(a, b)), (a, b))
    return [pairs[kinds] for kinds in sorted(pairs, key=len)]


def _kind(link: Link) -> tuple[Any, ...]:
    return link.tier, link.bandwidth_bytes_per_s, link.latency_s


def _measurement(task: Mapping[str, Any], by_rank: Sequence[Mapping[str, Any]]) -> Measurement:
    """What all ranks measured as one measurement; by_rank: what each returned, in the order of ranks."""
    sizes = task["sizes"]
    messages = {
        tuple(pair): [_point(size, by_rank[pair[0]]["messages"][i][k]) for k, size in enumerate(sizes)]
        for i, pair in enumerate(task["pairs"])
    }
    all_reduces = {
        n: [_point(size, _slowest([by_rank[r]["all_reduces"][i][k] for r in range(n)])) for k, size in enumerate(sizes)]
        for i, n in enumerate(task["counts"])
    }
    curves = [*messages.values(), *all_reduces.values()]
    return Measurement(
        messages=messages,
        all_reduces=all_reduces,
        send_cpu_s_per_byte=by_rank[0]["cpu_s_per_byte"],
        receive_cpu_s_per_byte=by_rank[1]["cpu_s_per_byte"],
        busy_latency_s=median([each["busy_latency_s"] for each in by_rank]),
        spread=max(points[-1][2] / points[-1][1] for points in curves),
    )


def _slowest(repetitions: Sequence[Sequence[float]]) -> list[float]:
    return [max(times) for times in zip(*repetitions, strict=True)]


def _point(size: int, seconds: Sequence[float]) -> tuple[float, float, float]:
    return size, median(seconds), spread(seconds)


def _curve(points: Points) -> Curve:
    """The medians, none above that of a longer message: what disturbs a measurement only ever adds time."""
    falling = list(accumulate((seconds for _, seconds, _ in reversed(points)), min))
    return Curve(points=tuple((size, seconds) for (size, _, _), seconds in zip(points, reversed(falling), strict=True)))


def _learn(cluster: Cluster, pair: tuple[int, int], points: Points, kinds: dict[tuple[Any, ...], Link]) -> None:
    """Add the kinds of link on a pair's route that no shorter route had, with bandwidth, latency and curve measured."""
    route = [cluster.links[i] for i in cluster.route(*pair)]
    new = [link for link in route if _kind(link) not in kinds]
    known_s = sum(kinds[_kind(link)].latency_s for link in route if _kind(link) in kinds)
    curve = _curve(points)
    (size0, time0), (size1, time1) = curve.points[-2:]
    share = (size1 - size0) / (time1 - time0) / min(link.bandwidth_bytes_per_s for link in route)
    for link in new:
        kinds[_kind(link)] = replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * share,
            latency_s=max(curve.points[0][1] - known_s, 0.0) / len(new),
            curve=curve,
        )


def _sources(measurement: Measurement, where: str) -> tuple[str, ...]:
    cpu = torch.device("cpu")
    versions = ", ".join(f"{name} {version}" for name, version in machine_settings.software(cpu).items())
    return (
        f"measured {datetime.now(UTC):%Y-%m-%d} {where}, gloo, {machine_settings.device_name(cpu, 1)} per rank, "
        f"{os.cpu_count()} cores in all; {versions}; medians, interquartile range at the largest size at most "
        f"{measurement.spread:.1%}",
        f"CPU per byte sent {measurement.send_cpu_s_per_byte * 1e9:.2f} ns, "
        f"received {measurement.receive_cpu_s_per_byte * 1e9:.2f} ns",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command `shardscope calibrate`, also `python -m traces.calibrate.links`: measure and write a cluster file."""
    parser = argparse.ArgumentParser(prog="shardscope calibrate", description=_DESCRIPTION)
    parser.add_argument("cluster", metavar="CLUSTER", help="cluster file, or a name that `shardscope clusters` lists")
    parser.add_argument("--devices", metavar="N", type=int, help="how many, filling nodes in order")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=600.0, help="give up after (default 600)")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write the measured cluster")
    args = parser.parse_args(argv)
    files.check_writable(args.output)
    cluster = read_cluster(args.cluster, devices=args.devices)
    measured = _on_these_hosts(cluster) if "RANK" in os.environ else _on_this_machine(cluster, args.timeout)
    if measured is not None:
        write_cluster(measured[0], args.output, measured[1])
        print(f"{args.output}: {'; '.join(measured[0].sources[-2:])}")
    return 0


def _on_this_machine(cluster: Cluster, timeout_s: float) -> tuple[Cluster, Runtime]:
    reason = namespaces.available()
    if reason:
        print(f"{reason}; measuring loopback without shaping instead", file=sys.stderr)
    with Lab(cluster) if not reason else nullcontext() as lab:
        return calibrate(cluster, lab, timeout_s=timeout_s)


def _on_these_hosts(cluster: Cluster) -> tuple[Cluster, Runtime] | None:
    """Measure between the processes that torchrun started, rank r as device r; the cluster on rank 0 only."""
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    require(ranks == len(cluster.devices), "ranks", ranks, f"one for each of the {len(cluster.devices)} devices")
    task = _task(cluster, None, None)
    with TemporaryDirectory() as folder:
        own = measure(Rank(dist.get_rank(), ranks, Path(folder)), **task)
    by_rank: list[Any] = [None] * ranks
    dist.all_gather_object(by_rank, own)
    dist.destroy_process_group()
    return apply(cluster, _measurement(task, by_rank), "between hosts") if os.environ["RANK"] == "0" else None


if __name__ == "__main__":
    sys.exit(main())
