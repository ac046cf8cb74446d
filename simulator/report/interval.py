"""How far a predicted step may be off, from the spreads of what it was predicted from: 5 and 95 % of actual steps.

    captures     the spread of the profile's whole step (else of its layers), on the compute of the binding chain
    calibration  the band of a tier's measured links, on the transfers of the binding chain
    sizes        the band of compute times that were not measured at their size
    drift        by how much a shared machine is another minutes later, on the whole step
    model        how far published steps were off whose predictions stood on the same (`evidence`), on the whole step
    gpu          how well the kernels of a GPU are known that ran no published step, on the step of a modelled profile

They are independent, so their squares add up, on either side by itself. What no file says adds nothing: a profile
without spreads and a preset's links look more certain than they are; `StepInterval.unknown` names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import hypot

from simulator.cluster import Cluster
from simulator.language_models.accelerators import sheet_of
from simulator.lowering.costs.typical_scaling import device_class
from simulator.ordered_sum import ordered_sum
from simulator.report.evidence import PredictionEvidence, evidence_of
from simulator.report.metrics import Report
from simulator.report.slow_links import share_band
from simulator.workload import Profile

BAND_TO_RANGE = 1.645 / 1.349
"""5 and 95 % of a normal distribution lie this many interquartile ranges from its middle."""
CPU_DRIFT = 0.19
"""Ranks on a shared machine: captures of the same network some minutes apart deviate from their mean by 8.1 % (37
captures in 13 series, pooled), a run minutes after a capture by sqrt(2) times that, 9 in 10 within 1.645 times as much
(docs/validation.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInterval:
    """Seconds between which 9 of 10 actual steps are expected; parts: by cause, (below, above) the middle.

    middle_s: the step expected of devices that vary (`simulator.run.expected_step_s`). unknown: what nothing is known
    of, in words.
    """

    low_s: float
    middle_s: float
    high_s: float
    parts: Mapping[str, tuple[float, float]]
    unknown: tuple[str, ...] = ()
    evidence: PredictionEvidence | None = None
    """How far predictions that stand on the same were off; None where no published step was predicted so."""


def step_interval(report: Report, profile: Profile, cluster: Cluster, middle_s: float | None = None) -> StepInterval:
    """The interval around `middle_s`, by default `report.step_s`, which profile and cluster predicted."""
    middle_s = report.step_s if middle_s is None else middle_s
    compute_s = _on_path(report, "compute") + _on_path(report, "server")
    parts: dict[str, tuple[float, float]] = {}
    unknown = []
    share = capture_spread(profile)
    if share is None:
        unknown.append("the profile has no spreads")
    elif share * compute_s:
        parts["captures"] = (share * compute_s, share * compute_s)
    bands = dict(_bands(report, cluster))
    if calibration := [band for band in bands.values() if band is not None]:
        parts["calibration"] = (
            hypot(*(below for below, _ in calibration)),
            hypot(*(above for _, above in calibration)),
        )
    unknown += [f"{tier} links have no measured band" for tier, band in bands.items() if band is None]
    if report.step_band_s is not None:
        low_s, high_s = report.step_band_s
        parts["sizes"] = (report.step_s - low_s, high_s - report.step_s)
    if device_class(profile.device) == "CPU":
        parts["drift"] = (CPU_DRIFT * report.step_s, CPU_DRIFT * report.step_s)
    elif "stack" in profile.software and (sheet := sheet_of(profile.device)) and sheet.uncertainty:
        parts["gpu"] = (sheet.uncertainty * report.step_s, sheet.uncertainty * report.step_s)
    plain = StepInterval(low_s=middle_s, middle_s=middle_s, high_s=middle_s, parts=parts, unknown=tuple(unknown))
    return widened(plain, report.step_s, evidence_of(profile) if device_class(profile.device) != "CPU" else None)


def widened(interval: StepInterval, step_s: float, evidence: PredictionEvidence | None) -> StepInterval:
    """`interval` of a predicted step with what `evidence` says of such predictions in place of what it had of that."""
    parts = {name: part for name, part in interval.parts.items() if name != "model"}
    if evidence:
        below, above = max(1 - evidence.low, 0.0), max(evidence.high - 1, 0.0)
        parts["model"] = (below * step_s, above * step_s)
    below_s, above_s = (hypot(*(part[side] for part in parts.values())) for side in (0, 1))
    low_s, high_s = max(interval.middle_s - below_s, 0.0), interval.middle_s + above_s
    return replace(interval, low_s=low_s, high_s=high_s, parts=parts, evidence=evidence)


def capture_spread(profile: Profile) -> float | None:
    """The share of its compute by which a profile's step varies to either side; None where it says no spread."""
    if profile.step_s and profile.step_spread_s:
        return BAND_TO_RANGE * profile.step_spread_s / profile.step_s
    spread_s = hypot(*(spread for x in profile.layers for spread in (x.forward_spread_s, x.backward_spread_s)))
    return BAND_TO_RANGE * spread_s / profile.layers_s if spread_s and profile.layers_s else None


def _on_path(report: Report, kind: str) -> float:
    """Seconds of the binding chain on devices of a kind or links of a tier, whose names stand first in `path_s`."""
    return ordered_sum(seconds for name, seconds in report.path_s.items() if name.partition(" ")[0] == kind)


def _bands(report: Report, cluster: Cluster) -> Iterator[tuple[str, tuple[float, float] | None]]:
    """By tier that bounds the step, or would if its links were slower: seconds (below, above) that its links' measured
    shares allow.

    Links give the median share of their line rate: the least share makes transfers longest, on the binding chain and on
    the busiest link; at the largest the step still takes what the busiest of all else does.
    """
    for tier in cluster.tiers:
        seconds, band = _on_path(report, tier), share_band(cluster, tier)
        if band is None:
            if seconds:
                yield tier, None
            continue
        low, high = band
        others_s = max((each_s for name, each_s in report.busiest_s.items() if name != tier), default=0.0)
        below_s = min(seconds * (1 - 1 / high), max(report.step_s - others_s, 0.0))
        above_s = max(seconds * (1 / low - 1), report.slow_links_s[tier] - report.step_s)
        if below_s or above_s > 0:
            yield tier, (below_s, above_s)
