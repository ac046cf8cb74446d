"""What each task of the synchronisation does with which bucket, as one device takes part in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator import collectives
from simulator.collectives import CollectiveTask
from simulator.lowering.parameters.buckets import Bucket
from simulator.taskgraph import Kind
from traces.runs.executor.run_setup import Script

Step = Literal["all-reduce", "push", "serve", "pull", "sum", "give", "scatter", "columns", "gather"]
"""push, serve, pull: to, on and from a server. sum, give: to and from the owner of a slice. scatter: leaves every
member a slice of the sum; columns: adds the slices of several groups; gather: of parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTransfer:
    """One task of a bucket, in sum number `sum` of the step; of a message, its source.

    part: (i, n), the i-th of n equal parts of the row; members: of a collective, in the order of its ring.
    """

    bucket: int
    sum: int
    step: Step
    source: int = -1
    part: tuple[int, int] = (0, 1)
    members: tuple[int, ...] = ()


def bucket_transfers(script: Script, rank: int) -> dict[int, BucketTransfer]:
    """By task, what it does of a bucket where `rank` takes part."""
    graph = script.graph
    transfers: dict[int, BucketTransfer] = {}
    shared = (graph.kind == Kind.SYNCHRONISATION) | ((graph.kind == Kind.UPDATE) & (graph.layer >= 0))
    for number, bucket in enumerate(script.sharded.buckets):
        tasks = np.flatnonzero(shared & (graph.shard == number)).tolist()
        steps = bucket.steps(script.cluster, script.plan)
        for summed in range(script.sharded.sums_per_step):
            kinds = _steps(script, bucket, steps, rank)
            for task, (step, part, members) in zip(tasks[summed * len(steps) :], kinds, strict=False):
                route = graph.route[task]
                source = graph.routes[route].pairs[0][0] if route >= 0 else -1
                transfers[task] = BucketTransfer(
                    bucket=number, sum=summed, step=step, source=source, part=part, members=members
                )
    for task in np.flatnonzero(graph.kind == Kind.PARAMETERS).tolist():
        members = tuple(source for source, _ in graph.routes[graph.route[task]].pairs)
        transfers[task] = BucketTransfer(bucket=int(graph.shard[task]), sum=0, step="gather", members=members)
    return transfers


def owners_of(bucket: Bucket) -> list[int]:
    """The devices that add up a slice each where those that hold terms are not those that need the sum."""
    return sorted({*bucket.holders} & {*bucket.devices}) or sorted(bucket.devices)


def _steps(
    script: Script, bucket: Bucket, steps: list[CollectiveTask], rank: int
) -> Iterator[tuple[Step, tuple[int, int], tuple[int, ...]]]:
    """What each of a bucket's steps does, with which part of it, among whom."""
    plan = script.plan
    if bucket.holders != bucket.devices:
        owners = owners_of(bucket)
        for index, owner in enumerate(owners):
            part = index, len(owners)
            yield from (("sum", part, ()) for device in bucket.holders if device != owner)
            yield from (("give", part, ()) for device in bucket.devices if device != owner)
    elif plan.states.stage:
        groups = plan.states.shard_groups(bucket.devices)
        if len(groups[0]) > 1:
            yield from (("scatter", (0, 1), members) for members in groups)
        if len(groups) > 1:
            yield "columns", (0, 1), next((c for c in zip(*groups, strict=True) if rank in c), ())
    elif collectives.load(plan.synchronisation.collective).updates_on_server:
        servers = [step.device for step in steps if step.route is None]
        for step in steps:
            pair = step.route.pairs[0] if step.route else (step.device, step.device)
            kind: Step = "serve" if step.route is None else "pull" if step.after else "push"
            yield kind, (servers.index(pair[0] if kind == "pull" else pair[1]), len(servers)), ()
    else:
        yield "all-reduce", (0, 1), bucket.group
