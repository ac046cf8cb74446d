"""What the sections of the reproduction page share: published profiles, switches, Markdown tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from simulator.cluster import Cluster, Device
from simulator.network.topologies import Wire, flat_switch
from simulator.workload import Profile

BATCH = {"alexnet": 256, "vgg16": 128, "resnet50": 128, "inception_v3": 128}
"""Samples of a mini-batch in PipeDream's published profiles."""
TITLES = {"alexnet": "AlexNet", "vgg16": "VGG-16", "resnet50": "ResNet-50", "inception_v3": "Inception-v3"}
MIB, GIB = 2**20, 2**30


def shared_data() -> Path:
    """The folder of measurements made by others. Raises FileNotFoundError when it is absent."""
    folder = Path(os.environ.get("SHARDSCOPE_DATA", "../shared/data"))
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: set SHARDSCOPE_DATA to where the published measurements are")
    return folder


@cache
def profile(name: str) -> Profile:
    """PipeDream's V100 profile of a network, its device unnamed: the papers compared with scale times in proportion."""
    from traces.imports.pipedream import read_pipedream

    return replace(read_pipedream(shared_data() / "pipedream" / f"{name}.txt", batch_size=BATCH[name]), device="")


def switch(devices: int, gigabits: float) -> Cluster:
    """Devices on one switch, `gigabits` Gb/s each way, 10 us."""
    wire = Wire(bandwidth_bytes_per_s=gigabits / 8 * 1e9, latency_s=5e-6, tier="inter")
    return flat_switch(devices, wire, device=Device(name="gpu", host="", kind="V100"))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
