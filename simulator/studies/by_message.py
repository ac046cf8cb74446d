"""One all-reduce message by message: what late devices and unequal links do to it when it is alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator import collectives
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import InputError, require
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.taskgraph import Floats, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceByMessage:
    """When each worker begins and has the sum; lockstep_s: when all have it where each round waits for everyone."""

    collective: str
    begin_s: Floats
    end_s: Floats
    lockstep_s: float


def collectives_by_message() -> tuple[str, ...]:
    """The collectives whose messages are counted."""
    return tuple(name for name in collectives.names() if collectives.load(name).ends)


def all_reduce_by_message(
    cluster: Cluster, collective: str, size_bytes: float, begin_s: Sequence[float], message_overhead_s: float = 0.0
) -> AllReduceByMessage:
    """An all-reduce of `size_bytes` over all workers, which begin at `begin_s`, in order of their numbers.

    message_overhead_s: what a worker takes for each message that it gets, and once to begin. lockstep_s is what a
    simulated step takes for it, without that, where no library or measured curve says otherwise. Raises InputError for
    a collective of which no messages are counted.
    """
    ends = collectives.load(collective).ends
    if ends is None:
        known = ", ".join(collectives_by_message())
        raise InputError(f"collective is {collective}: messages are counted for {known}")
    require(cluster.workers >= 2, "devices", cluster.workers, "an all-reduce is between at least 2")
    begin = np.array(begin_s, dtype=np.float64)
    return AllReduceByMessage(
        collective=collective,
        begin_s=begin,
        end_s=ends(cluster, range(cluster.workers), size_bytes, begin, message_overhead_s),
        lockstep_s=float(begin.max()) + _lockstep_s(cluster, collective, size_bytes),
    )


def _lockstep_s(cluster: Cluster, collective: str, size_bytes: float) -> float:
    """Seconds of the collective as a step is lowered to it, alone on the links, and by the links alone."""
    builder = GraphBuilder()
    tasks: list[int] = []
    for step in collectives.load(collective).tasks(cluster, range(cluster.workers), size_bytes):
        if step.route is not None:
            route = builder.route(replace(step.route, collective=""))
            added = builder.add(Kind.SYNCHRONISATION, 1, route=route, bytes=step.bytes, seconds=step.seconds)
            builder.depend(added, [tasks[i] for i in step.after])
            tasks.append(int(added[0]))
    return simulate(builder.build(np.zeros(len(cluster.devices)), ()), cluster).step_s
