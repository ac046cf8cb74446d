"""What shares sized to devices of unequal speed gain over even ones. Usage: python -m benchmarks.studies.unequal"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.pages.published import table
from partitioners import make_plan
from simulator import files
from simulator.cluster import Cluster
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import StepSettings
from simulator.run import step_seconds

PROFILE, SAMPLES = "vgg16", 32
SETS = {
    "speeds 1, 1, 1/2, 1/4": (1.0, 1.0, 0.5, 0.25),
    "8 of speed 1 and 8 of 1/4": (1.0,) * 8 + (0.25,) * 8,
    "4 of speed 1 and 4 of 0.16": (1.0,) * 4 + (0.16,) * 4,
}


def gains() -> str:
    """The gain of balanced over even shares for each set of speeds, as a Markdown table."""
    return table(["devices", "gain", "limit"], [_row(name, speeds) for name, speeds in SETS.items()])


def _row(name: str, speeds: tuple[float, ...]) -> tuple[str, str, str]:
    free = flat_switch(len(speeds), Wire(bandwidth_bytes_per_s=1e12))
    devices = tuple(replace(device, speed=speed) for device, speed in zip(free.devices, speeds, strict=True))
    cluster = replace(free, devices=devices)
    gain = _step_s(cluster, balance=False) / _step_s(cluster, balance=True)
    return name, f"{gain:.2f}x", f"{sum(speeds) / len(speeds) / min(speeds):.2f}x"


def _step_s(cluster: Cluster, balance: bool) -> float:
    profile = files.read_profile(PROFILE)
    step = StepSettings(batch_size=SAMPLES * cluster.workers)
    plan = make_plan("data", profile, cluster, step, balance=balance)
    return step_seconds(profile, cluster, plan)


if __name__ == "__main__":
    print(gains())
