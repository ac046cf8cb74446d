"""A task graph whose collectives block: the thread that computes waits in each, as torch does over gloo on a CPU.

compute   ■■■  ■■        a collective and the tasks of its members become one sequence per device, in the order
link         ▒▒          in which they would have started had nothing blocked
blocked   ■■■▒▒■■
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.runtime import Runtime
from simulator.taskgraph import Ints, TaskGraph
from traces.runs.executor.run_setup import in_order


def blocking(graph: TaskGraph, cluster: Cluster, runtime: Runtime) -> TaskGraph:
    """`graph` with every device's tasks and the collectives that it takes part in one after the other."""
    order = in_order(graph, simulate(graph, cluster, runtime))
    collective = np.array([len(route.pairs) > 1 for route in graph.routes] + [False])[graph.route]  # (tasks,)
    members = [set(route.devices) for route in graph.routes]
    chains: list[Ints] = []
    for device in range(len(cluster.devices)):
        takes_part = [
            device in members[graph.route[task]]
            if collective[task]
            else not graph.is_transfer[task] and graph.device[task] == device
            for task in order.tolist()
        ]
        chains.append(order[np.array(takes_part, dtype=np.bool_)])
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_start))
    later = np.concatenate([owner, *(chain[1:] for chain in chains)])
    earlier = np.concatenate([graph.dependencies, *(chain[:-1] for chain in chains)])
    by_task = np.argsort(later, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(later, minlength=len(graph)))])
    return replace(graph, dependencies=earlier[by_task], dependency_start=start)
