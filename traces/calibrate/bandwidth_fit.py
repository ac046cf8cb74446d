"""Fits what training gets of a link's bandwidth to measured steps.

    shardscope calibrate azure-v100-10g --from measured.csv -o OUT.yaml

measured.csv has a header and one measured data-parallel step a line:

    profile    a profile file or a name of the library
    devices    how many workers
    batch_size of all of them together
    step_s     measured seconds of a step
    sync       optional: how gradients are summed (default ring)
    overlap    optional: yes (default) or no, whether they are summed while the backward pass still runs

Every line by itself gives one efficiency, and all together the one whose steps have the least squared logarithmic
error. Nominal bandwidth alone predicts such steps badly: TCP, copies and the framework take their share.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path

from scipy.optimize import brentq, minimize_scalar  # type: ignore[import-untyped]

from simulator import collectives, file_gate, files
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import InputError, require, require_name
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.one_line_parser import OneLineParser
from simulator.plan import Synchronisation
from simulator.run import lowered
from simulator.studies.scaling import replicated
from simulator.workload import Profile

LEAST, MOST = 1e-3, 1.0
"""The range of efficiencies, as shares of the line rate."""
COLUMNS, OPTIONAL = ("profile", "devices", "batch_size", "step_s"), ("sync", "overlap")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One measured data-parallel step; batch_size is of all devices together."""

    profile: Profile
    devices: int
    batch_size: int
    step_s: float
    synchronisation: Synchronisation = Synchronisation()

    def step_s_at(self, source: str, tier: str, efficiency: float) -> float:
        """The simulated step on the cluster `source` when links of `tier` give this share of their line rate."""
        needed = collectives.load(self.synchronisation.collective).needs_server
        cluster = read_cluster(source, devices=self.devices, needs_server=needed)
        cluster = cluster.with_efficiency(tier, efficiency, "tried")
        plan = replicated(self.profile, self.devices, self.batch_size, self.synchronisation)
        return simulate(lowered(self.profile, cluster, plan).graph, cluster).step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The efficiency that fits all steps best, that of each step alone, and the steps simulated with the common one."""

    efficiency: float
    alone: tuple[float, ...]
    steps_s: tuple[float, ...]


def fit(measured: Sequence[MeasuredStep], source: str, tier: str) -> Fit:
    """Fit the efficiency of `tier` of the cluster `source`. Raises InputError when a step has no such efficiency."""
    alone = tuple(fit_one(step, source, tier) for step in measured)

    def error(x: float) -> float:
        return sum(log(step.step_s_at(source, tier, exp(x)) / step.step_s) ** 2 for step in measured)

    bounds = log(min(alone)), log(max(alone))
    best = exp(minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x)
    steps_s = tuple(step.step_s_at(source, tier, best) for step in measured)
    return Fit(efficiency=best, alone=alone, steps_s=steps_s)


def fit_one(measured: MeasuredStep, source: str, tier: str) -> float:
    """The share of the bandwidth, from LEAST to MOST, with which the simulated step lasts as long as the measured one.

    Its logarithm is found to 1e-9. Raises InputError where no share within them does.
    """
    low, high = log(LEAST), log(MOST)
    fastest_s, slowest_s = (measured.step_s_at(source, tier, exp(x)) for x in (high, low))
    where = f"{measured.profile.model} on {measured.devices} devices of {source}"
    rule = f"the step of {where} does not depend on these links; name the tier it waits for"
    require(fastest_s != slowest_s, "tier", tier, rule)
    if not fastest_s <= measured.step_s <= slowest_s:
        raise InputError(
            f"step_s is {measured.step_s} for {measured.profile.model} on {measured.devices} devices: with "
            f"{LEAST:g} to all of the bandwidth of {tier} links the step takes {slowest_s:.4g} to {fastest_s:.4g} s; "
            "check the profile, the batch size and the overlap"
        )
    return exp(brentq(lambda x: measured.step_s_at(source, tier, exp(x)) - measured.step_s, low, high, xtol=1e-9))


def read_measured(path: str | Path) -> list[MeasuredStep]:
    """The steps in a CSV file. Raises InputError that names the line, or OSError."""
    names, rows = file_gate.table(Path(path))
    for name in names:
        require_name(f"column of {path}", name, COLUMNS + OPTIONAL)
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise InputError(f"{path}: column {missing[0]} is missing: the first line names {', '.join(COLUMNS)}")
    read_once = cache(files.read_profile)
    steps = [_measured(row, f"{path}, line {number}", read_once) for number, row in enumerate(rows, 2)]
    if not steps:
        raise InputError(f"{path}: it has no line but the header; give at least one measured step")
    return steps


def _measured(row: dict[str, str], where: str, profile_of: Callable[[str], Profile]) -> MeasuredStep:
    try:
        devices, batch_size, step_s = int(row["devices"]), int(row["batch_size"]), float(row["step_s"])
    except (TypeError, ValueError):
        raise InputError(f"{where}: devices and batch_size are whole numbers and step_s is a number") from None
    if min(devices, batch_size) < 1 or not 0 < step_s < float("inf"):
        raise InputError(f"{where}: devices, batch_size and step_s are positive")
    overlap = (row.get("overlap") or "yes").strip().lower()
    if overlap not in ("yes", "no"):
        raise InputError(f"{where}: overlap is {overlap!r}: it is yes or no")
    synchronisation = Synchronisation(collective=(row.get("sync") or "ring").strip(), overlap=overlap == "yes")
    profile = profile_of(row["profile"].strip())
    return MeasuredStep(
        profile=profile, devices=devices, batch_size=batch_size, step_s=step_s, synchronisation=synchronisation
    )


def main(argv: Sequence[str]) -> int:
    """`shardscope calibrate CLUSTER --from CSV -o OUT.yaml`: fit, print, write the cluster."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser(prog="shardscope calibrate", description=__doc__, formatter_class=plain)
    parser.add_argument("cluster", metavar="CLUSTER", help="cluster file, or a name that `shardscope clusters` lists")
    parser.add_argument("--from", dest="csv", metavar="CSV", required=True, help="measured steps")
    parser.add_argument("--tier", metavar="NAME", default="inter", help="the links to fit (default inter)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the cluster with the efficiency found")
    args = parser.parse_args(argv)
    if args.output is not None:
        files.check_writable(args.output, files.YAML)
    measured = read_measured(args.csv)
    fitted = fit(measured, args.cluster, args.tier)
    for step, alone, step_s in zip(measured, fitted.alone, fitted.steps_s, strict=True):
        print(
            f"{step.profile.model} on {step.devices}: measured {step.step_s:.4g} s; alone it says {alone:.3f}; "
            f"with {fitted.efficiency:.3f} the step takes {step_s:.4g} s ({step_s / step.step_s - 1:+.1%})"
        )
    print(f"{args.tier} links give training {fitted.efficiency:.3f} of their line rate")
    if args.output:
        write_cluster(_calibrated(args, measured, fitted), args.output)
        print(f"cluster: {args.output}")
    return 0


def _calibrated(args: argparse.Namespace, measured: Sequence[MeasuredStep], fitted: Fit) -> Cluster:
    """The cluster with as many devices as the largest measured step had."""
    cluster = read_cluster(args.cluster, devices=max(step.devices for step in measured))
    steps = "one measured step" if len(measured) == 1 else f"{len(measured)} measured steps"
    return cluster.with_efficiency(args.tier, fitted.efficiency, f"fitted to {steps} of {Path(args.csv).name}")
