"""The plainest formulas of a validated run's step: what someone with the same capture and no simulator would say.

    compute           the busiest device's layers as captured; with m micro-batches in p stages (m + p - 1) / m as much
    bytes             data parallel: what the busiest link carries; a pipeline: all that crosses one of its boundaries
    no overlap        compute + bytes / line rate
    perfect overlap   the longer of the two

The line rate is the lab's nominal one: neither latencies, nor core time, nor anything calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulator import files
from simulator.plan import Plan
from simulator.report.metrics import Report
from simulator.run import step_report
from traces.results.validation_cases import Case, LabNetwork
from traces.results.validations import plan_path

MEGABIT = 1e6 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStep:
    """Seconds of a step's compute, bubble included, and of its bytes at the line rate."""

    compute_s: float
    bytes_s: float

    @property
    def no_overlap_s(self) -> float:
        """Seconds of a step that computes, then sends."""
        return self.compute_s + self.bytes_s

    @property
    def perfect_overlap_s(self) -> float:
        """Seconds of a step that sends while it computes."""
        return max(self.compute_s, self.bytes_s)


def plain_step(folder: Path, case: Case) -> PlainStep | None:
    """The formulas' step of a run whose capture and plan `folder` holds; None where it does not."""
    if not plan_path(folder, case).exists():
        return None
    profile = files.read_profile(folder / "profiles" / f"{case.model}.json")
    cluster = case.with_straggler(case.network.cluster([0, 1]))
    plan = files.read_plan(plan_path(folder, case))
    report = step_report(profile, cluster, plan)
    busiest_s = max(device.compute_s for device in report.devices)
    return PlainStep(compute_s=busiest_s * _bubble(case, plan), bytes_s=_bytes_s(report, case))


def _bubble(case: Case, plan: Plan) -> float:
    """How many times its compute a pipeline's step takes: (m + p - 1) / m."""
    if case.strategy != "pipeline":
        return 1.0
    return (plan.microbatches + case.network.ranks - 1) / plan.microbatches


def _bytes_s(report: Report, case: Case) -> float:
    rate = _line_rate(case.network)
    if case.strategy == "pipeline":
        return report.communication_bytes.total / (case.network.ranks - 1) / rate
    return max(link.bytes for link in report.links) / rate


def _line_rate(network: LabNetwork) -> float:
    """Bytes per second of the slowest link."""
    return MEGABIT * min(rate for rate in (network.mbit, network.trunk_mbit, network.slow_mbit) if rate is not None)
