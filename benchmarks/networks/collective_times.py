"""Collectives by mechanism against measured ones. Usage: python -m benchmarks.networks.collective_times [--write]

Takes measured collectives apart into the few numbers of a `CollectiveLibrary` and of two links, by least squares within
bounds, and predicts what was left out: whole numbers of devices, and whole sources. Prints the table of
docs/profiles.md, and before it what the presets hold with --constants. Needs SHARDSCOPE_DATA, pyarrow and scipy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log, log2
from typing import Any

import numpy as np

from benchmarks.networks.link_shares import MIB, aceso_all_reduces
from benchmarks.networks.measured_collectives import (
    NDR,
    ONE_H100,
    P4DE,
    P5,
    PER_NODE,
    Rows,
    aiconfigurator,
    aws,
    azure,
    rows_of,
    ultra_scale,
)
from benchmarks.pages.published import table
from simulator.cluster import Cluster
from simulator.collective_library import CollectiveLibrary
from simulator.curve import Curve
from simulator.network.catalogue import read_preset
from simulator.network.collective_times import collective_s
from simulator.network.topologies import Wire, two_tier

LARGE_BYTES = 32 * MIB
"""From where on a collective is limited by bandwidth."""


Constants = Mapping[str, float]
BOUNDS: Mapping[str, tuple[float, float]] = {
    "inside_s": (1e-7, 1e-5),
    "inside_bytes_per_s": (1e10, 1e12),
    "between_s": (5e-7, 5e-4),
    "between_bytes_per_s": (1e9, 1e12),
    "launch_s": (1e-6, 5e-5),
    "fill_s": (1e-6, 2e-4),
    "step_ratio": (1.0, 6.0),
    "short_share": (0.03, 1.0),
    "short_between": (0.003, 1.0),
    "copy_bytes_per_s": (1e11, 5e12),
    "switch_share": (0.3, 1.0),
    "switch_fill_s": (1e-6, 1e-3),
}
"""Of what is fitted: a step's latency and a device's bandwidth inside a host, a host's between, and the library."""
INSIDE = ("inside_s", "inside_bytes_per_s", "launch_s", "fill_s", "short_share", "copy_bytes_per_s")
SWITCH = (*INSIDE, "switch_share", "switch_fill_s")
BETWEEN = ("between_s", "between_bytes_per_s", "step_ratio", "short_between")


def cluster_of(constants: Constants, devices: int, wires: int = 8, once: bool = True) -> Cluster:
    """A cluster of nodes of eight with these numbers."""
    latency_s = constants["inside_s"] / 2
    library = CollectiveLibrary(
        launch_s=constants["launch_s"],
        fill_s=constants["fill_s"],
        step_ratio=constants.get("step_ratio", 1.0),
        short_share=constants["short_share"],
        short_between=constants.get("short_between", 1.0),
        copy_bytes_per_s=constants["copy_bytes_per_s"],
        switch_share=constants.get("switch_share"),
        switch_fill_s=constants.get("switch_fill_s", 0.0),
        two_hosts_once=once,
    )
    between = Wire(
        bandwidth_bytes_per_s=constants.get("between_bytes_per_s", 1e9),
        latency_s=max(constants.get("between_s", 0.0) - constants["inside_s"], 0.0) / 2,
        tier="inter",
        wires=wires,
    )
    inside = Wire(bandwidth_bytes_per_s=constants["inside_bytes_per_s"], latency_s=latency_s, tier="intra")
    return replace(two_tier(devices, PER_NODE, inside, between), library=library)


def errors(cluster: Cluster, rows: Rows) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Logarithms of predicted over measured seconds, shape (rows,)."""
    predicted = (collective_s(cluster, row.name, tuple(range(row.devices)), row.size_bytes) for row in rows)
    return np.array([log(seconds / row.seconds) for seconds, row in zip(predicted, rows, strict=True)])


def fitted(rows: Rows, free: Sequence[str], known: Constants, once: bool = True) -> Constants:
    """Constants that miss the rows least; those of `free` start from `known` and stay within their bounds."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]  # takes a while to load

    devices = max(row.devices for row in rows)
    low, high = np.log([BOUNDS[name] for name in free]).T

    def constants(logarithms: Iterable[float]) -> Constants:
        return {**known, **dict(zip(free, map(float, np.exp(list(logarithms))), strict=True))}

    def missed(logarithms: Iterable[float]) -> Any:
        return errors(cluster_of(constants(logarithms), devices, once=once), rows)

    start = np.clip(np.log([known[name] for name in free]), low + 1e-9, high - 1e-9)
    solution = least_squares(missed, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, diff_step=1e-3)
    return constants(solution.x)


START: Constants = {
    "inside_s": 1e-6, "inside_bytes_per_s": 2.5e11, "launch_s": 7e-6, "fill_s": 2e-5, "short_share": 0.4,
    "copy_bytes_per_s": 9e11, "between_s": 1e-5, "between_bytes_per_s": 1.2e11, "step_ratio": 1.5,
    "short_between": 0.1,
}  # fmt: skip
WITH_SWITCH: Constants = {**START, "switch_share": 0.78, "switch_fill_s": 5.5e-5}


@cache
def h100(devices: tuple[int, ...] = (2, 4, 8)) -> Constants:
    return fitted(aiconfigurator("h100", devices), SWITCH, WITH_SWITCH)


@cache
def h200() -> Constants:
    return fitted(aiconfigurator("h200", (2, 4, 8)), SWITCH, WITH_SWITCH)


@cache
def a100(devices: tuple[int, ...] = (2, 4, 8)) -> Constants:
    return fitted(aiconfigurator("a100", devices), INSIDE, START)


@cache
def azure_a100(devices: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128)) -> Constants:
    """All-reduces say nothing of copies, which are those of the other A100."""
    free = [name for name in INSIDE if name != "copy_bytes_per_s"]
    return fitted(azure(devices), [*free, *BETWEEN], {**START, "copy_bytes_per_s": 8.5e11}, once=False)


@cache
def p5(every: int = 1) -> Constants:
    """Between nodes every so many sizes, inside them as H100."""
    return fitted(aws(*P5)[::every], BETWEEN, {**h100(), "between_bytes_per_s": 2.4e11, "between_s": 3e-5})


@cache
def p4de(every: int = 1) -> Constants:
    return fitted(aws(*P4DE)[::every], BETWEEN, {**a100(), "between_bytes_per_s": 4e10, "between_s": 9e-5})


CONSTANTS: Mapping[str, Callable[[], Constants]] = {
    "dgx-a100": azure_a100, "dgx-a100-80": a100, "dgx-h100": h100, "dgx-h200": h200, "p4de": p4de, "p5": p5,
}  # fmt: skip
"""What presets hold, by preset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Rows that nothing was fitted to, and the cluster that predicts them."""

    what: str
    fitted_to: str
    cluster: Cluster
    rows: Rows

    @property
    def cells(self) -> list[str]:
        """A row of the table: medians and the largest error, of large and of small sizes."""
        error = np.exp(np.abs(errors(self.cluster, self.rows))) - 1
        large = np.array([row.size_bytes >= LARGE_BYTES for row in self.rows])
        sets = [
            f"{np.median(error[of]):.0%} / {error[of].max():.0%} ({of.sum()})" if of.any() else "-"
            for of in (large, ~large)
        ]
        return [self.what, self.fitted_to, *sets]


def held_out() -> Iterator[HeldOut]:
    """What the presets' numbers do not know, source by source."""
    some = azure_a100((2, 8, 16, 64))
    for devices in (4, 32, 128):
        yield HeldOut(
            what=f"{devices} A100-40, Azure, all-reduce",
            fitted_to="2, 8, 16 and 64 of them",
            cluster=cluster_of(some, devices, once=False),
            rows=azure((devices,)),
        )
    for card, fit in (("a100", a100), ("h100", h100)):
        yield HeldOut(
            what=f"4 {card.upper()}, AIConfigurator, four collectives",
            fitted_to="2 and 8 of them",
            cluster=cluster_of(fit((2, 8)), 4),
            rows=aiconfigurator(card, (4,)),
        )
    yield HeldOut(
        what="8 H100, awslabs, all-reduce",
        fitted_to="AIConfigurator's H100",
        cluster=cluster_of(h100(), 8),
        rows=aws(*ONE_H100),
    )
    yield HeldOut(
        what="2 to 8 H200, AIConfigurator, four collectives",
        fitted_to="its H100",
        cluster=cluster_of(h100(), 8),
        rows=aiconfigurator("h200", (2, 4, 8)),
    )
    for what, file, fit in (("p5", P5, p5), ("p4de", P4DE, p4de)):
        yield HeldOut(
            what=f"16 on 2 {what}, all-reduce, every other size",
            fitted_to="the other sizes; inside a node AIConfigurator's",
            cluster=cluster_of(fit(2), 16),
            rows=aws(*file)[1::2],
        )
    yield HeldOut(
        what="256 H100 on NDR InfiniBand, all-gather and all-reduce of 2 GiB",
        fitted_to="the preset dgx-h100: latency of HDR, bandwidth of a card",
        cluster=read_preset("dgx-h100").build(256),
        rows=NDR,
    )
    preset = read_preset("p5").build(512)
    for jobs, fastest in (("the mean of jobs", False), ("the fastest of twenty", True)):
        for name in ("all-reduce", "all-gather", "reduce-scatter"):
            yield HeldOut(
                what=f"8 to 512 H100 with EFA, Ultra-Scale, {name} of 1 GiB, {jobs}",
                fitted_to="2 p5; inside a node AIConfigurator's",
                cluster=preset,
                rows=[row for row in ultra_scale(fastest) if row.name == name],
            )


def p3_16xlarge() -> Mapping[str, Mapping[int, Curve]]:
    """All-reduces on 2 to 8 V100 of Azure NDv2, the same hybrid cube mesh: a group has part of its links."""
    return {"all_reduce": {count: _thinned(aceso_all_reduces(count)) for count in (2, 4, 8)}}


def _thinned(points: Iterable[tuple[float, float]]) -> Curve:
    """Every fourth power of two, and the ends."""
    rows = rows_of("all-reduce", 2, points)
    ends = rows[0].size_bytes, rows[-1].size_bytes
    kept = [row for row in rows if log2(row.size_bytes) % 2 == 0 or row.size_bytes in ends]
    return Curve(points=tuple((row.size_bytes, float(f"{row.seconds:.3e}")) for row in kept if row.size_bytes < 2**32))


def main(argv: Sequence[str] | None = None) -> None:
    if "--constants" in (sys.argv[1:] if argv is None else argv):
        for preset, constants in CONSTANTS.items():
            print(preset, {name: float(f"{value:.3g}") for name, value in constants().items()})
    heads = ["measured", "fitted to", "from 32 MiB, median / worst (points)", "below"]
    print(table(heads, [each.cells for each in held_out()]))


if __name__ == "__main__":
    main()
