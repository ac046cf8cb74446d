"""Engines: TaskGraph, Cluster, Runtime -> Timeline. Two of them, which give the same bytes.

columns            what both run, as numpy columns; graph_checks refuses what none can
reference          SimPy: devices and network; the order of events is defined here
  run_context        clock and shared capacities of a run
  device_queues      ready tasks by device
  transfer_steps     a transfer's way from ready to ended, and what a runtime may ask for on it
compiled           the same in C, used where a compiler or a wheel has made it
  compiled_room      what it works in
  compiled.c         the loop
  compiled_state.h, compiled_queues.h, compiled_sharing.h, compiled_tasks.h      in that order
  compiled_shares.h, compiled_filling.h      parts of sharing: from resource to resource, and by progressive filling
  compiled_chain.h, compiled_rows.h     chains of dependencies, and what devices do and hold, for reports
  compiled_stages.h                     the dynamic programme over contiguous stages, for partitioners
library            finds or compiles it
noise              stragglers and jitter: seeded changes of how long compute tasks take
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from math import inf

import numpy as np

from simulator.cluster import Cluster
from simulator.engine.columns import Columns, make_columns
from simulator.engine.compiled import (
    compiled_binding_chain,
    compiled_chain_s,
    is_available,
    missing_words,
    run_compiled,
)
from simulator.engine.graph_checks import check_dependencies
from simulator.errors import InputError, StuckError, require_name
from simulator.network.token_buckets import depths_bytes, shaped
from simulator.network.transfers import paths
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats, Ints, TaskGraph
from simulator.timeline import Timeline

__all__ = ["ENGINES", "binding_tasks", "engine_name", "longest_chain_s", "simulate", "slow_engine_words"]

ENGINES: Mapping[str, Callable[[Columns], tuple[Floats, Floats]]] = {
    "compiled": run_compiled,
    # imported when asked for: SimPy takes longer to import than most steps to simulate
    "reference": lambda columns: import_module("simulator.engine.reference").run_reference(columns),
}

BUCKET_ROUNDS = 3
"""How often at most a step is simulated again with what its transfers lacked of tokens in the round before."""


def simulate(graph: TaskGraph, cluster: Cluster, runtime: Runtime = IDEAL, engine: str | None = None) -> Timeline:
    """Run `graph` on `cluster` as `runtime` would. Same inputs give the same timeline, bit for bit, on either engine.

    engine: one of ENGINES; without it `engine_name()`. Raises StuckError, naming blocked tasks and what each waits for,
    when the graph has a cycle; InputError where a number is out of its range or the engine is not available.
    """
    columns = make_columns(graph, cluster, runtime)
    name = engine_name(engine)
    start_s, end_s = ENGINES[name](columns)
    if (end_s == inf).any():
        raise StuckError(_explain(graph, end_s))
    if graph.routes and depths_bytes(cluster).any():
        start_s, end_s = _with_token_buckets(graph, cluster, columns, name, (start_s, end_s))
    return Timeline(start_s=start_s, end_s=end_s, engine=name)


def _with_token_buckets(
    graph: TaskGraph, cluster: Cluster, columns: Columns, name: str, spans: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Spans of all tasks, given those with full buckets, where transfers wait for the tokens that earlier ones took.

    Which tokens lack depends on when transfers begin, so the spans are those of as many rounds as change anything, at
    most BUCKET_ROUNDS.
    """
    rates, before_s = paths(graph.routes, cluster, graph.kept).rate_bytes_per_s, None
    for _ in range(BUCKET_ROUNDS):
        buckets = shaped(graph, cluster, *spans)
        if before_s is not None and np.array_equal(buckets.later_s, before_s):
            break
        spans, before_s = ENGINES[name](columns.shaped(buckets, rates)), buckets.later_s
    return spans


def longest_chain_s(graph: TaskGraph, seconds: Floats, engine: str | None = None) -> float:
    """When the last task would end if each began once all that it waits for had; seconds: of each task.

    engine: as for `simulate`; both give the same. Raises InputError where a dependency names no task.
    """
    check_dependencies(graph)
    return compiled_chain_s(graph, seconds) if engine_name(engine) == "compiled" else _chain_s(graph, seconds.tolist())


def _chain_s(graph: TaskGraph, seconds: list[float]) -> float:
    end_s = [0.0] * len(graph)
    for task, waited in graph.waits_first():
        end_s[task] = max((end_s[other] for other in waited), default=0.0) + seconds[task]
    return max(end_s, default=0.0)


def binding_tasks(graph: TaskGraph, timeline: Timeline, before: Ints, engine: str | None = None) -> Ints:
    """Back from the task that ended last: each with the task that it waited for until it began, last to first.

    That is the dependency that ended last, or the task that its device ran before, if that ended later. before: this
    one, -1 where there is none, shape (tasks,). engine: as for `simulate`. Raises InputError where a dependency names
    no task.
    """
    check_dependencies(graph)
    start_s, end_s = timeline.start_s, timeline.end_s
    if not len(graph) or engine_name(engine) == "compiled":
        return compiled_binding_chain(graph, start_s, end_s, before) if len(graph) else before
    chain = [int(np.argmax(end_s))]
    while len(chain) <= len(graph):
        task = chain[-1]
        waits = [int(other) for other in (*graph.predecessors(task), before[task]) if other >= 0]
        if not waits or start_s[task] <= 0:
            break
        chain.append(max(waits, key=end_s.__getitem__))
    return np.array(chain, dtype=np.int64)


def engine_name(engine: str | None = None) -> str:
    """The engine that runs: `engine`, that of the environment variable SHARDSCOPE_ENGINE, or the compiled one.

    Where that cannot be built "reference" runs. Raises InputError when it was asked for by name.
    """
    wanted = engine or os.environ.get("SHARDSCOPE_ENGINE")
    if wanted is None:
        return "compiled" if is_available() else "reference"
    require_name("engine", wanted, ENGINES)
    if wanted == "compiled" and not is_available():
        raise InputError(f"engine is compiled: {missing_words()}; install a C compiler, or take the reference engine")
    return wanted


def slow_engine_words() -> str:
    """What to tell a user where steps are simulated by the slow engine; "" where they are not."""
    if engine_name() == "compiled":
        return ""
    why = missing_words() if os.environ.get("SHARDSCOPE_ENGINE") is None else "as SHARDSCOPE_ENGINE says"
    return f"the slow engine ran ({why}): the numbers are the same, but they take longer"


def _explain(graph: TaskGraph, end_s: Floats) -> str:
    """Up to three tasks that never started, with what each waits for."""
    blocked = (end_s == inf).nonzero()[0].tolist()
    lines = []
    for task in blocked[:3]:
        missing = [int(other) for other in graph.predecessors(task) if end_s[other] == inf]
        waits = ", ".join(graph.describe(other) for other in missing[:3]) or "its device"
        lines.append(f"{graph.describe(task)} waits for {waits}")
    return f"{len(blocked)} of {len(graph)} tasks are blocked, because the graph has a cycle: " + "; ".join(lines)
