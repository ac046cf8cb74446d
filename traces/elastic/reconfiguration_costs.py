"""Measure what changing the devices of a job costs on this machine: `shardscope calibrate --reconfiguration`.

    launch, framework, stop   a crew with a process on each core that restarts
    groups                    a crew that forms a new group between two steps, by the number of its members
    checkpoint                files of several sizes, written to the disk and read back
    detect                    a crew of two, one of which is killed in the middle of a step

Processes run in a network lab shaped like the cluster (root), else over loopback.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch

from simulator import files
from simulator.cluster import Cluster, Curve
from simulator.elastic.reconfiguration import DETECT, FRAMEWORK, GROUPS, LAUNCH, LEAVE, STOP, Overheads
from simulator.network.catalogue import read_cluster
from traces.capture import machine_settings
from traces.elastic.elastic_worker import TrainingJob, read_state, write_state
from traces.elastic.membership_changes import MembershipChange, switch_of
from traces.elastic.process_group import ElasticProcessGroup
from traces.lab import namespaces
from traces.lab.shaped_network import Lab

SIZES_BYTES = (1 << 20, 1 << 22, 1 << 24, 1 << 26)
TRAINING = TrainingJob(model="vgg_small", batch_size=64)
REPEATS = 5


def overheads(cluster: Cluster, lab: Lab | None, cores: Sequence[int]) -> Overheads:
    """The overheads on this machine, medians; one process per device of `cluster`, in its lab or over loopback."""
    starts = list(_restarts(lab, cores))
    counts = [n for n in (1, 2, 4, 8, 16, 32) if n < len(cluster.devices)] + [len(cluster.devices)]
    regrouped = _regroupings(lab, cores, counts)
    write, read = _checkpoints()
    return Overheads(
        stop_s=_median(one[STOP] for one in starts),
        launch_s=_median(one[LAUNCH] for one in starts),
        framework_s=_median(one[FRAMEWORK] for one in starts),
        leave_s={count: _median(one.parts_s[LEAVE] for one in switches) for count, switches in regrouped.items()},
        group_s={count: _median(one.parts_s[GROUPS] for one in switches) for count, switches in regrouped.items()},
        checkpoint_write=write,
        checkpoint_read=read,
        detect_s=_median(_detections(lab, cores)),
        sources=(_source(lab),),
    )


def _regroupings(lab: Lab | None, cores: Sequence[int], counts: Sequence[int]) -> dict[int, list[MembershipChange]]:
    """By number of devices, how a training crew left its group and formed a new one."""
    found: dict[int, list[MembershipChange]] = {count: [] for count in counts}
    with ElasticProcessGroup(TRAINING, lab, cores) as crew:
        crew.start(tuple(range(counts[-1])))
        order = [count for count in reversed(counts) for _ in range(REPEATS)]
        for count in order:
            crew.await_steps(3)
            crew.shrink(tuple(range(count)))
        crew.await_steps(3)
        crew.finish()
        switches = [switch_of(crew, generation, "shrink") for generation in range(1, len(order) + 1)]
    for switch in switches:
        if switch.before == switch.after:
            found[switch.after].append(switch)
    return found


def _restarts(lab: Lab | None, cores: Sequence[int]) -> Iterator[dict[str, float]]:
    """The parts of restarts of a crew with a process for each core."""
    members = tuple(range(min(len(cores), len(lab.cluster.devices) if lab else len(cores))))
    with ElasticProcessGroup(TRAINING, lab, cores) as crew:
        crew.start(members)
        for _ in range(REPEATS):
            crew.await_steps(3)
            crew.expand(members, "restart")
        crew.await_steps(3)
        crew.finish()
        for generation in range(1, REPEATS + 1):
            yield dict(switch_of(crew, generation, "restart").parts_s)


def _detections(lab: Lab | None, cores: Sequence[int]) -> Iterator[float]:
    for _ in range(3):
        with ElasticProcessGroup(TRAINING, lab, cores) as crew:
            crew.start((0, 1))
            crew.await_steps(4)
            crew.kill(1)
            crew.await_steps(2)
            crew.finish()
            yield switch_of(crew, 1, "recover").parts_s[DETECT]


def _checkpoints() -> tuple[Curve, Curve]:
    """Curves of writing a file to the disk and of reading it back from the system's cache."""
    written: list[tuple[float, float]] = []
    loaded: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="shardscope-") as folder:
        for size in SIZES_BYTES:
            pairs = [_write_and_read_s(Path(folder) / "checkpoint", size) for _ in range(REPEATS)]
            written.append((float(size), _median(write for write, _ in pairs)))
            loaded.append((float(size), _median(read for _, read in pairs)))
    return Curve(points=tuple(written)), Curve(points=tuple(loaded))


def _write_and_read_s(path: Path, size_bytes: int) -> tuple[float, float]:
    state = torch.ones(size_bytes // 4)
    began = time.perf_counter()
    write_state(path, state)
    wrote = time.perf_counter()
    read_state(path, state)
    return wrote - began, time.perf_counter() - wrote


def _median(seconds: Iterator[float] | Sequence[float]) -> float:
    return float(f"{statistics.median(seconds):.4g}")


def _source(lab: Lab | None) -> str:
    place = torch.device("cpu")
    versions = ", ".join(f"{name} {version}" for name, version in machine_settings.software(place).items())
    where = "in a network lab" if lab else "over loopback"
    device = machine_settings.device_name(place, 1)
    return (
        f"measured {datetime.now(UTC):%Y-%m-%d} {where} of {device}, {os.cpu_count()} cores in all, {TRAINING.model}, "
        f"gloo; {versions}; medians of {REPEATS}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command `shardscope calibrate --reconfiguration`: measure and write an overheads file."""
    parser = argparse.ArgumentParser(prog="shardscope calibrate --reconfiguration", description=__doc__)
    parser.add_argument("cluster", metavar="CLUSTER", help="cluster file, or a name that `shardscope clusters` lists")
    parser.add_argument("--devices", metavar="N", type=int, help="how many, filling nodes in order")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write the overheads")
    args = parser.parse_args(argv)
    files.check_writable(args.output)
    cluster = read_cluster(args.cluster, devices=args.devices)
    reason = namespaces.available()
    if reason:
        print(f"{reason}; measuring over loopback instead", file=sys.stderr)
    with Lab(cluster) if not reason else nullcontext() as lab:
        found = overheads(cluster, lab, sorted(os.sched_getaffinity(0)))
    files.write_yaml(found, args.output)
    print(f"{args.output}: {'; '.join(found.sources)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
