"""Measure what changing the devices of a job costs on this machine: `shardscope calibrate --reconfiguration`.

    launch, framework, stop   an elastic process group with a process on each core that restarts
    groups                    one that forms a new group between two steps, by the number of its ranks
    checkpoint                files of several sizes, written to the disk and read back
    detect                    one of two ranks, of which one is killed in the middle of a step

Processes run in a network lab shaped like the cluster (root), else over loopback.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch

from simulator import files
from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.elastic.reconfiguration import DETECT, FRAMEWORK, GROUPS, LAUNCH, LEAVE, STOP, Overheads
from simulator.errors import require
from simulator.network.catalogue import read_cluster
from simulator.one_line_parser import OneLineParser, count
from simulator.owned_files import temporary_folder
from traces.capture import machine_settings
from traces.capture.measurement_rounds import median
from traces.elastic.elastic_worker import TrainingJob, read_state, write_state
from traces.elastic.process_group import ElasticProcessGroup, measured_change
from traces.lab import namespaces
from traces.lab.child_processes import usable_cores
from traces.lab.shaped_network import Lab

SIZES_BYTES = (1 << 20, 1 << 22, 1 << 24, 1 << 26)
TRAINING = TrainingJob(model="vgg_small", batch_size=64)
REPEATS = 5


def overheads(cluster: Cluster, lab: Lab | None, cores: Sequence[int]) -> Overheads:
    """The overheads on this machine, medians in seconds; one process per device of `cluster`, in its lab or over
    loopback."""
    restarts = list(_restarts(lab, cores))
    counts = [n for n in (1, 2, 4, 8, 16, 32) if n < len(cluster.devices)] + [len(cluster.devices)]
    regroupings = _regroupings(lab, cores, counts)
    write, read = _checkpoints()
    return Overheads(
        stop_s=median([parts_s[STOP] for parts_s in restarts]),
        launch_s=median([parts_s[LAUNCH] for parts_s in restarts]),
        framework_s=median([parts_s[FRAMEWORK] for parts_s in restarts]),
        leave_s={count: median([parts_s[LEAVE] for parts_s in group]) for count, group in regroupings.items()},
        group_s={count: median([parts_s[GROUPS] for parts_s in group]) for count, group in regroupings.items()},
        checkpoint_write=write,
        checkpoint_read=read,
        detect_s=median(list(_detections(lab, cores))),
        sources=(_source(lab),),
    )


def _regroupings(lab: Lab | None, cores: Sequence[int], counts: Sequence[int]) -> dict[int, list[Mapping[str, float]]]:
    """By number of devices, the parts of leaving the process group and forming one of as many ranks, in seconds."""
    parts_s: dict[int, list[Mapping[str, float]]] = {count: [] for count in counts}
    with ElasticProcessGroup(TRAINING, lab, cores) as group:
        group.start(tuple(range(counts[-1])))
        order = [count for count in reversed(counts) for _ in range(REPEATS)]
        for count in order:
            group.await_steps(3)
            group.change(tuple(range(count)))
        group.await_steps(3)
        group.finish()
        changes = [measured_change(group, generation, "shrink") for generation in range(1, len(order) + 1)]
    for change in changes:
        if change.before == change.after:
            parts_s[change.after].append(change.parts_s)
    return parts_s


def _restarts(lab: Lab | None, cores: Sequence[int]) -> Iterator[dict[str, float]]:
    """The parts of restarts of a group with a process for each core, in seconds."""
    devices = tuple(range(min(len(cores), len(lab.cluster.devices) if lab else len(cores))))
    with ElasticProcessGroup(TRAINING, lab, cores) as group:
        group.start(devices)
        for _ in range(REPEATS):
            group.await_steps(3)
            group.change(devices, "restart")
        group.await_steps(3)
        group.finish()
        for generation in range(1, REPEATS + 1):
            yield dict(measured_change(group, generation, "restart").parts_s)


def _detections(lab: Lab | None, cores: Sequence[int]) -> Iterator[float]:
    for _ in range(3):
        with ElasticProcessGroup(TRAINING, lab, cores) as group:
            group.start((0, 1))
            group.await_steps(4)
            group.kill(1)
            group.await_steps(2)
            group.finish()
            yield measured_change(group, 1, "recover").parts_s[DETECT]


def _checkpoints() -> tuple[Curve, Curve]:
    """Curves of writing a file to the disk and of reading it back from the system's cache."""
    written: list[tuple[float, float]] = []
    loaded: list[tuple[float, float]] = []
    with temporary_folder() as folder:
        for size in SIZES_BYTES:
            pairs = [_write_and_read_s(Path(folder) / "checkpoint", size) for _ in range(REPEATS)]
            written.append((float(size), median([write_s for write_s, _ in pairs])))
            loaded.append((float(size), median([read_s for _, read_s in pairs])))
    return Curve(points=tuple(written)), Curve(points=tuple(loaded))


def _write_and_read_s(path: Path, size_bytes: int) -> tuple[float, float]:
    state = torch.ones(size_bytes // 4)
    began = time.perf_counter()
    write_state(path, state)
    wrote = time.perf_counter()
    read_state(path, state)
    return wrote - began, time.perf_counter() - wrote


def _source(lab: Lab | None) -> str:
    where = "in a network lab" if lab else "over loopback"
    return (
        f"measured {datetime.now(UTC):%Y-%m-%d} {where} of {machine_settings.device_name()}, {os.cpu_count()} cores in "
        f"all, {TRAINING.model}, gloo; {machine_settings.versions()}; medians of {REPEATS}"
    )


def main(argv: Sequence[str]) -> int:
    """The command `shardscope calibrate --reconfiguration`: measure and write an overheads file."""
    parser = OneLineParser(prog="shardscope calibrate --reconfiguration", description=__doc__)
    parser.add_argument("cluster", metavar="CLUSTER", help="cluster file, or a name that `shardscope clusters` lists")
    parser.add_argument("--devices", metavar="N", type=count, help="how many, filling nodes in order")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write the overheads")
    args = parser.parse_args(argv)
    files.check_writable(args.output, files.YAML)
    cluster = read_cluster(args.cluster, devices=args.devices)
    devices = len(cluster.devices)
    require(devices >= 2, "devices", devices, "one of two ranks is killed to see when it is noticed: at least 2")
    reason = namespaces.available()
    if reason:
        print(f"{reason}; measuring over loopback instead", file=sys.stderr)
    with Lab(cluster) if not reason else nullcontext() as lab:
        measured = overheads(cluster, lab, usable_cores())
    files.write_yaml(measured, args.output)
    print(f"{args.output}: {'; '.join(measured.sources)}")
    return 0
