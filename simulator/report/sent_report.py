"""A report on its way from one process to another: its rows take longer to make and to send than all the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from simulator.cluster import Cluster
from simulator.report.deferred_rows import DeferredRows
from simulator.report.metrics import Report
from simulator.workload import Profile


def without_rows(report: Report) -> Report:
    """All of it but the rows of devices, links and layers."""
    return replace(report, devices=(), links=(), layers=())


def with_rows(report: Report, profile: Profile, cluster: Cluster, simulated: Callable[[], Report]) -> Report:
    """A report that came without rows; simulated: asked for the whole report once somebody reads one."""
    again = cache(simulated)
    return replace(
        report,
        devices=DeferredRows(len(cluster.devices), lambda: tuple(again().devices)),
        links=DeferredRows(len(cluster.links), lambda: tuple(again().links)),
        layers=DeferredRows(len(profile.layers), lambda: tuple(again().layers)),
    )
