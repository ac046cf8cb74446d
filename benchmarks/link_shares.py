"""What collectives and training get of the line rate, published. Usage: python -m benchmarks.link_shares

Prints the `achieved` of the presets (`simulator/network/presets`): median, 5 and 95 % of the shares. Needs
SHARDSCOPE_DATA. Nothing here is among the steps that docs/accuracy.md predicts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from statistics import median

import numpy as np

from benchmarks import holdout
from benchmarks.published import shared_data
from simulator.cluster import AchievedShare
from simulator.network.catalogue import Join, read_preset
from traces.calibrate.bandwidth_fit import fit_one
from traces.imports.nccl_tests import read_nccl_log

LEAST_BYTES = 2**23
"""Gradient buckets of 25 MiB lie between the sizes of 8 MiB and more that are read here."""


def a100(tier: str) -> AchievedShare:
    """nccl-tests' all-reduce on Azure ND A100 v4, sizes from 8 MiB: bus bandwidth, 2 S (N-1) / N over the time."""
    line, shares = _line("dgx-a100", tier), []
    for devices in (2, 4, 8) if tier == "intra" else (16, 32, 64, 128):
        for size, seconds in read_nccl_log(shared_data() / "nccl" / f"nccl_{devices}.log").curve.points:
            if size >= LEAST_BYTES:
                shares.append(2 * (devices - 1) / devices * size / seconds / line)
    return _share(shares)


def h100(tier: str) -> AchievedShare:
    """Hugging Face's all-reduce bus bandwidth by nodes: 1 node inside, 2 to 64 between; bands are its own 5 and 95 %.

    Between nodes the median is that of the node counts, the band reaches from the lowest 5 to the highest 95 %; that of
    two nodes is above the line rate, as the source has it.
    """
    charts = json.loads((shared_data() / "ultrascale" / "charts.json").read_text(encoding="utf-8"))
    band, means = charts["pp_comm_bandwidth.html"]["traces"][:2]
    line = _line("dgx-h100", tier) / 1e9
    nodes = slice(0, 1) if tier == "intra" else slice(1, None)
    count = len(means["y"])
    high, low = band["y"][:count][nodes], band["y"][count:][::-1][nodes]
    return AchievedShare(
        median=_rounded(median(means["y"][nodes]) / line),
        low=_rounded(min(low) / line),
        high=_rounded(max(high) / line),
    )


@cache
def ten_gigabit() -> AchievedShare:
    """PipeDream's data parallelism over 10 Gb/s Ethernet, 8 to 32 V100: what each published overhead implies."""
    return _share(
        fit_one(holdout.measured(model, devices, holdout.LATER), holdout.CLUSTER, holdout.TIER)
        for devices in holdout.OVERHEAD
        for model in holdout.PER_DEVICE
    )


SHARES: Mapping[tuple[str, str], Callable[[], AchievedShare]] = {
    ("azure-v100-10g", "inter"): ten_gigabit,
    ("p3-8xlarge", "inter"): ten_gigabit,
    ("dgx-a100", "intra"): lambda: a100("intra"),
    ("dgx-a100", "inter"): lambda: a100("inter"),
    ("dgx-h100", "intra"): lambda: h100("intra"),
    ("dgx-h100", "inter"): lambda: h100("inter"),
}
"""By preset and tier."""


def main() -> None:
    """Print every share."""
    for (preset, tier), share in SHARES.items():
        print(preset, tier, share())


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
