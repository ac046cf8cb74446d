"""What collectives, messages and training get of the line rate, measured.

Usage: python -m benchmarks.networks.link_shares

Prints the `achieved` of the presets (`simulator/network/presets`): median, 5 and 95 % of the shares. Needs
SHARDSCOPE_DATA. Where nobody measured a preset's own link, the nearest class of link that somebody measured stands in,
and the preset's source says so. Nothing here is among the steps that docs/accuracy.md predicts.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import log2

import numpy as np

from benchmarks.networks import holdout
from benchmarks.pages.published import shared_data
from simulator.cluster import AchievedShare
from simulator.network.catalogue import Join, read_preset
from traces.calibrate.bandwidth_fit import fit_one

MIB = 2**20
LEAST_BYTES = 8 * MIB
"""Gradient buckets of 25 MiB lie between the sizes of 8 MiB and more that are read here."""
MEGABYTES = tuple(2.0**exponent for exponent in range(3, 11))
"""Where polynomials and linear fits are read, from 8 MB to 1 GB."""


@cache
def ten_gigabit() -> AchievedShare:
    """PipeDream's data parallelism over 10 Gb/s Ethernet, 8 to 32 V100: what each published overhead implies."""
    return _share(
        fit_one(holdout.measured(model, devices, holdout.LATER), holdout.CLUSTER, holdout.TIER)
        for devices in holdout.OVERHEAD
        for model in holdout.PER_DEVICE
    )


def today() -> AchievedShare:
    """Of 25 Gb/s Ethernet: what takes ResNet-50 on p3.16xlarge to the published 92 % on 16 and 85 % on 32 GPUs with
    libraries of 2019 and later, mixed precision; down to what those of 2018 got."""
    return AchievedShare(median=0.7, low=ten_gigabit().low, high=0.95)


def nvlink_mesh(line_bytes_per_s: float, counts: Sequence[int]) -> AchievedShare:
    """Aceso's all-reduces on V100 in a mesh of NVLinks (Azure NDv2), sizes from 8 MiB, of a GPU's links together."""
    return _share(
        bus / line_bytes_per_s for count in counts for bus in _bus_bandwidths(count, aceso_all_reduces(count))
    )


def infiniband_edr() -> AchievedShare:
    """Aceso's messages between two NDv2, which 100 Gb/s EDR InfiniBand joins, from 8 MiB."""
    (sizes, rates) = _aceso_lines("p2p_inter_node.csv")
    return _share(rate * 1e9 / 12.5e9 for size, rate in zip(sizes, rates, strict=True) if size * MIB >= LEAST_BYTES)


def sailor(kind: str, cards: Mapping[str, int], line_bytes_per_s: float) -> AchievedShare:
    """Sailor's bandwidths by size, "intra" a node or "inter", of so many GPUs of each card, 8 MB to 1 GB."""
    return _share(_sailor_shares(kind, cards, line_bytes_per_s))


def pcie_4() -> AchievedShare:
    """SimuMax's all-reduces of 2 and 4 A100 on PCIe 4 (its latency and efficiency), Sailor's of 4 RTX 3090."""
    line = _line("workstation-4gpu", "intra")
    path = shared_data() / "simumax" / "configs" / "system" / "a100_pcie.json"
    networks, shares = json.loads(path.read_text(encoding="utf-8"))["networks"], []
    for devices in (2, 4):
        fitted = networks[f"intra_node_pcie_{devices}x"]
        all_reduce, gigabytes = fitted["op"]["all_reduce"], fitted["bandwidth"]["gbps"]
        rate, latency_s = all_reduce["efficient_factor"] * gigabytes * 1e9, all_reduce["latency_us"] * 1e-6
        sent = [2 * (devices - 1) / devices * size * 1e6 for size in MEGABYTES]
        shares += [size / (latency_s + size / rate) / line for size in sent]
    return _share([*shares, *_sailor_shares("intra", {"RTX-3090": 4}, line)])


PCIE_3 = {"RTX-2080": 2, "Titan-RTX": 2}
"""Sailor's cards on PCIe 3, in pairs."""
SHARES: Mapping[tuple[str, str], Callable[[], AchievedShare]] = {
    ("azure-v100-10g", "intra"): lambda: sailor("intra", PCIE_3, _line("azure-v100-10g", "intra")),
    ("azure-v100-10g", "inter"): ten_gigabit,
    ("cpu-1g", "inter"): lambda: sailor("inter", {"RTX-3090": 1}, _line("cpu-1g", "inter")),
    ("gcp-v100", "intra"): lambda: sailor("intra", {"V100-16": 4}, _line("gcp-v100", "intra")),
    ("gcp-v100", "inter"): lambda: sailor("inter", {"V100-16": 4}, _line("gcp-v100", "inter")),
    ("p100-4x4", "intra"): lambda: nvlink_mesh(_line("p3-8xlarge", "intra"), (2, 4)),
    ("p100-4x4", "inter"): infiniband_edr,
    ("p3-16xlarge", "intra"): lambda: nvlink_mesh(_line("p3-16xlarge", "intra"), (2, 4, 8)),
    ("p3-16xlarge", "inter"): today,
    ("p3-8xlarge", "intra"): lambda: nvlink_mesh(_line("p3-8xlarge", "intra"), (2, 4)),
    ("p3-8xlarge", "inter"): ten_gigabit,
    ("t4-g4dn", "intra"): lambda: sailor("intra", PCIE_3, _line("t4-g4dn", "intra")),
    ("t4-g4dn", "inter"): ten_gigabit,
    ("workstation-4gpu", "intra"): pcie_4,
    ("workstation-4gpu", "inter"): ten_gigabit,
}
"""By preset and tier."""


def main() -> None:
    """Print every share."""
    for (preset, tier), share in SHARES.items():
        print(preset, tier, share())


@cache
def aceso_all_reduces(devices: int) -> tuple[tuple[float, float], ...]:
    """(bytes, seconds) of all-reduces over so many V100 of one node, of all models of the source, by size."""
    points = {}
    for name in _aceso_files():
        if name.startswith("prim_gpt") and name.endswith(f"all_reduce_{devices}gpus.csv"):
            points.update({size * MIB: milliseconds / 1e3 for size, milliseconds in _aceso_lines(name)[1:] if size})
    return tuple(sorted(points.items()))


@cache
def _aceso_files() -> Mapping[str, str]:
    with tarfile.open(shared_data() / "aceso" / "visible.tar.gz") as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(("prim_gpt", "p2p"))]
        streams = {member.name: archive.extractfile(member) for member in members}
        return {name: stream.read().decode() for name, stream in streams.items() if stream is not None}


def _aceso_lines(name: str) -> list[list[float]]:
    """The numbers of a file's lines, the header of names as an empty one."""
    lines = _aceso_files()[name].splitlines()
    return [[] if "size" in line else [float(cell) for cell in line.split(",")] for line in lines]


def _sailor_shares(kind: str, cards: Mapping[str, int], line_bytes_per_s: float) -> Iterator[float]:
    """Its polynomials give GB/s over log2 of the megabytes, here up to the most that it measured and the line rate."""
    name = {"intra": "intra_node_bandwidths.json", "inter": "network_coeffs_all_homo.json"}[kind]
    content = json.loads((shared_data() / "sailor" / "providers" / name).read_text(encoding="utf-8"))
    for card, count in cards.items():
        (square, linear, constant), most = content.get(kind, content)[card][str(count)]
        for size in MEGABYTES:
            rate = 1e9 * (square * log2(size) ** 2 + linear * log2(size) + constant)
            yield min(rate, most, line_bytes_per_s) / line_bytes_per_s


def _bus_bandwidths(devices: int, points: Iterable[tuple[float, float]]) -> Iterator[float]:
    """Of all-reduces of at least LEAST_BYTES, bytes/s that each device sends."""
    for size, seconds in points:
        if size >= LEAST_BYTES:
            yield 2 * (devices - 1) / devices * size / seconds


def _line(preset: str, tier: str) -> float:
    """Bytes/s of all wires of a tier, which all devices of a node share."""
    join: Join = getattr(read_preset(preset), tier)
    return join.wires * join.bandwidth_bytes_per_s


def _share(shares: Iterable[float]) -> AchievedShare:
    low, middle, high = np.quantile(list(shares), (0.05, 0.5, 0.95)).tolist()
    return AchievedShare(median=_rounded(middle), low=_rounded(low), high=_rounded(high))


def _rounded(value: float) -> float:
    return round(value, 3)


if __name__ == "__main__":
    main()
