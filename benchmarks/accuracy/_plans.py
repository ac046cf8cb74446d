"""The step of a plan of a profile, beside a published one."""

from __future__ import annotations

from typing import Any

from simulator.cluster import Cluster
from simulator.language_models.training_stack import runtime_of
from simulator.plan import Plan
from simulator.report.evidence import kind_of
from simulator.report.interval import step_interval
from simulator.report.metrics import Report
from simulator.run import step_report
from simulator.runtime import Runtime
from simulator.workload import Profile


def prediction(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime | None = None) -> dict[str, Any]:
    """What the product says of a plan, as fields of a PredictedStep; runtime: None for the one of the profile."""
    report = step_report(profile, cluster, plan, runtime=runtime or runtime_of(profile))
    return prediction_of(report, profile, cluster)


def prediction_of(report: Report, profile: Profile, cluster: Cluster) -> dict[str, Any]:
    """The same of a plan that was simulated."""
    interval = step_interval(report, profile, cluster)
    return {"predicted_s": report.step_s, "fit": report.fit, "kind": kind_of(profile) or "", "interval": interval}
