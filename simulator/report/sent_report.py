"""A report on its way from one process to another: most of its rows take longer to make and to send than all else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from simulator.cluster import Cluster
from simulator.report.deferred_rows import DeferredRows
from simulator.report.metrics import Report
from simulator.workload import Profile


def without_rows(report: Report) -> Report:
    """All of it but the rows of links and layers, which take longest to make."""
    return replace(report, links=(), layers=())


def with_rows(report: Report, profile: Profile, cluster: Cluster, simulated: Callable[[], Report]) -> Report:
    """A report that came without rows; simulated: asked for the whole report once somebody reads one."""
    again = cache(simulated)
    return replace(
        report,
        links=DeferredRows(len(cluster.links), lambda: tuple(again().links)),
        layers=DeferredRows(len(profile.layers), lambda: tuple(again().layers)),
    )
