"""Collectives that others measured: nccl-tests' logs, AIConfigurator's tables, the Ultra-Scale Playbook's chart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

from benchmarks.pages.published import shared_data
from simulator.network.collective_times import sent_share
from traces.imports.nccl_tests import read_nccl_log

LEAST_BYTES = 1024.0
"""Smaller ones are not read."""
PARQUET = {"a100": "a100_sxm_nccl2.27.3", "h100": "h100_sxm_nccl2.29.2", "h200": "h200_sxm_nccl2.29.2"}
PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """A collective of `size_bytes` on `devices`, of which the first eight fill a host, and so on."""

    name: str
    devices: int
    size_bytes: float
    seconds: float


Rows = Sequence[MeasuredCollective]


@cache
def azure(devices: tuple[int, ...]) -> Rows:
    """nccl-tests' all-reduces on Azure ND A100 v4."""
    logs = [read_nccl_log(shared_data() / "nccl" / f"nccl_{count}.log") for count in devices]
    return [row for log in logs for row in rows_of("all-reduce", log.devices, log.curve.points)]


@cache
def aiconfigurator(card: str, devices: tuple[int, ...]) -> Rows:
    """AIConfigurator's collectives of 16-bit numbers. `message_size` counts elements, of an all-to-all one device's."""
    from pyarrow.parquet import read_table  # type: ignore[import-not-found, import-untyped, unused-ignore]

    points: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in read_table(shared_data() / "nccl" / f"{PARQUET[card]}.parquet").to_pylist():
        if row["nccl_dtype"] == "half" and row["num_gpus"] in devices:
            name, count = row["op_name"].replace("alltoall", "all_to_all").replace("_", "-"), row["num_gpus"]
            size = 2.0 * row["message_size"] * (count if name == "all-to-all" else 1)
            points.setdefault((name, count), []).append((size, row["latency"] / 1e3))
    return [row for (name, count), of in sorted(points.items()) for row in rows_of(name, count, sorted(of))]


@cache
def aws(file: str, number: int, devices: int) -> Rows:
    """awslabs' all-reduces: a table of a file, out of place."""
    text = (shared_data() / "aws-nccl" / file).read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\S*:)?\s*(\d+)\s+\d+\s+float\s+sum\s+-1\s+([\d.]+)", text, re.MULTILINE)
    points = [(float(size), float(microseconds) / 1e6) for size, microseconds in lines]
    begins = [position for position, (size, _) in enumerate(points) if size == 8]
    return rows_of("all-reduce", devices, points[slice(*[*begins, None][number : number + 2])])


P4DE, P5 = ("2x_p4de_and_2x_p5.txt", 0, 16), ("2x_p4de_and_2x_p5.txt", 1, 16)
ONE_H100 = ("aws_batch.txt", 0, 8)


ULTRA_SCALE_BYTES = 2.0**30
COPIED_S = 2 * ULTRA_SCALE_BYTES / (0.85 * 3.35e12)
"""What an H100 takes to read and write as much, at the stack nanotron-h100's share of its memory's bandwidth."""


def ultra_scale(fastest: bool = False) -> Rows:
    """The Ultra-Scale Playbook's bus bandwidths on 1 to 64 nodes: means of many jobs, or what one in twenty exceeds.

    Its charts do not say how they were measured; `measure_bandwidth` in nanotron's branch of the benchmark (December
    2024) takes 2^28 numbers of 32 bits, and gathers and scatters lists, which torch copies into one piece or out of it.
    """
    charts = json.loads((shared_data() / "ultrascale" / "charts.json").read_text(encoding="utf-8"))
    traces = charts["pp_comm_bandwidth.html"]["traces"]  # of each name behind a band: its upper end, then its lower one
    rows = []
    for band, trace in zip(traces[::2], traces[1::2], strict=True):
        name = {"AllReduce": "all-reduce", "AllGather": "all-gather", "ReduceScatter": "reduce-scatter"}[trace["name"]]
        for exponent, gigabytes in enumerate((band if fastest else trace)["y"][: len(trace["y"])]):
            devices = PER_NODE * 2**exponent
            seconds = sent_share(name, devices) * ULTRA_SCALE_BYTES / (gigabytes * 1e9)
            seconds -= COPIED_S if name != "all-reduce" else 0.0
            rows.append(MeasuredCollective(name=name, devices=devices, size_bytes=ULTRA_SCALE_BYTES, seconds=seconds))
    return rows


NDR: Rows = [
    MeasuredCollective(
        name=name, devices=256, size_bytes=2.0**31, seconds=sent_share(name, 256) * 2.0**31 / bytes_per_s
    )
    for name, bytes_per_s in (("all-gather", 2.0e11), ("all-reduce", 3.4e11))
]
"""256 H100, a card of 400 Gb/s InfiniBand each: bus bandwidths of 2 GiB as NVIDIA/nccl issue 1218 (2024) has them."""


def rows_of(name: str, devices: int, points: Iterable[tuple[float, float]]) -> Rows:
    """Points of a log, without times that a larger size undercuts: some jump by a multiple from one to the next."""
    kept, least_s = [], inf
    for size, seconds in sorted(points, reverse=True):
        if seconds < least_s:
            least_s = seconds
            if size >= LEAST_BYTES:
                kept.append(MeasuredCollective(name=name, devices=devices, size_bytes=size, seconds=seconds))
    return kept[::-1]
