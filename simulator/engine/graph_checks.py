"""What no engine runs: graphs whose indices point outside, or whose numbers are negative or not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.taskgraph import TaskGraph

_MOST, LARGEST = 2**31 - 2, float(np.finfo(np.float64).max)


def check(graph: TaskGraph, cluster: Cluster) -> None:
    """Raise InputError where an index points outside, or a number is negative or not finite."""
    devices, transfers = len(cluster.devices), graph.is_transfer
    check_dependencies(graph)
    within("device", graph.device, -1, devices - 1)
    within("route", graph.route, -1, len(graph.routes) - 1)
    within("devices of routes", graph.pairs, 0, devices - 1)
    require(bool((transfers | (graph.device >= 0)).all()), "device", "-1", "a compute task has one")
    within("seconds", graph.seconds, 0.0, LARGEST)
    within("bytes", graph.bytes, 0.0, LARGEST)
    within("launch_s", graph.launch_s, 0.0, LARGEST)
    launched = len(graph.launch_s), len(graph.host_waits)
    require(
        launched in ((0, 0), (len(graph),) * 2), "launch_s, host_waits", launched, "one value for each task, or none"
    )


def check_dependencies(graph: TaskGraph) -> None:
    """Raise InputError unless the dependencies are rows of task numbers; looked at once."""
    graph.kept.get(check_dependencies, lambda: _check_dependencies(graph))


def _check_dependencies(graph: TaskGraph) -> None:
    starts, edges = graph.dependency_start, len(graph.dependencies)
    within("tasks and dependencies", np.array([len(graph), edges]), 0, _MOST)
    within("dependencies", graph.dependencies, 0, len(graph) - 1)
    require(len(starts) == len(graph) + 1 and starts[0] == 0 and starts[-1] == edges, "dependency_start", starts, "CSR")
    require(bool((starts[1:] >= starts[:-1]).all()), "dependency_start", starts, "it never decreases")


def within(name: str, values: npt.NDArray[Any], low: float, high: float) -> None:
    """Raise InputError unless all `values` lie in [low, high]; NaN does not."""
    if len(values):
        least, most = values.min(), values.max()
        if not (low <= least and most <= high):
            raise InputError(f"{name} is {least} to {most}: it is from {low} to {high}")
