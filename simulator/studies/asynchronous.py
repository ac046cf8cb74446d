"""Parameter servers that do not wait for everyone: several steps of every worker, and their steady-state throughput.

A worker pushes its gradients, the servers apply them at once, and the worker goes on as soon as it has pulled what
it pushed for. Asynchronously (Dean et al., NeurIPS 2012) nobody waits for anybody; with a bound of s
(stale-synchronous, Ho et al., NeurIPS 2013) a worker begins its step c only when every worker has finished
its step c - s - 1, so s = 0 is one step after the other for all, and a larger s forgives short delays. What stale
gradients do to learning is not modelled, only the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator import collectives
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import InputError, require
from simulator.lowering.parameters.buckets import Bucket
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.plan import Plan
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats, Kind, Route, TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousSteps:
    """Several steps of every worker.

    steps_per_s: steady-state throughput, shape (workers,); worker_samples: samples per step, shape (workers,).

    graph and timeline hold all of them; ends_s, shape (workers, steps), says when each step had been pulled.
    compute_s: seconds of compute in a step without stragglers, shape (workers,).
    """

    graph: TaskGraph
    timeline: Timeline
    ends_s: Floats
    steps_per_s: Floats
    worker_samples: Floats
    compute_s: Floats

    @property
    def samples_per_s(self) -> float:
        """Steady-state throughput of all workers together."""
        return float(self.steps_per_s @ self.worker_samples)


def run_asynchronously(
    profile: Profile,
    cluster: Cluster,
    plan: Plan,
    *,
    staleness: int | None,
    steps: int = 10,
    slowdown: Floats | None = None,
    runtime: Runtime = IDEAL,
) -> AsynchronousSteps:
    """Simulate `steps` steps of every worker of a data-parallel plan with parameter servers.

    staleness: the bound s, None for none. slowdown: shape (workers, steps), factors on the compute of each step.
    A worker's speed is taken between the end of its first step and the last that ended before any worker had
    finished all of its own. Raises InputError when the plan is not data-parallel or has no servers.
    """
    require(staleness is None or staleness >= 0, "staleness", staleness, "it is at least 0")
    require(steps >= 3, "steps", steps, "it is at least 3: the first one is not counted")
    workers = len(_group(plan))
    factors = np.ones((workers, steps)) if slowdown is None else slowdown
    require(factors.shape == (workers, steps), "slowdown", factors.shape, f"its shape is {(workers, steps)}")
    model = ShardedModel(profile, plan)
    tiled = _Tiled(model, cluster, staleness, factors)
    timeline = simulate(tiled.graph, cluster, runtime)
    ends_s = timeline.end_s[tiled.last]
    return AsynchronousSteps(
        graph=tiled.graph,
        timeline=timeline,
        ends_s=ends_s,
        steps_per_s=_speeds(ends_s),
        worker_samples=np.diff(model.intervals(0)[0]).ravel().astype(np.float64) * plan.microbatches,
        compute_s=tiled.compute_s,
    )


def _speeds(ends_s: Floats) -> Floats:
    """AsynchronousSteps per second of each worker while all of them work."""
    horizon_s = ends_s[:, -1].min()
    counts = np.maximum((ends_s <= horizon_s).sum(axis=1), 2)
    spans_s = ends_s[np.arange(len(ends_s)), counts - 1] - ends_s[:, 0]
    return np.asarray((counts - 1) / spans_s)


def _group(plan: Plan) -> tuple[int, ...]:
    """The workers of a plan that puts every layer by sample on the same ones."""
    first = next(iter(plan.placements.values()))
    if any(p != first or p.degrees[1:] != (1, 1, 1) for p in plan.placements.values()) or len(first.devices) < 2:
        raise InputError(
            f"plan {plan.strategy!r}: workers that do not wait for each other need data parallelism over at least "
            "2 devices; use strategy data"
        )
    return first.devices


class _Tiled:
    """The task graph of all steps; `last[w, i]` is the task that ends step i of worker w."""

    def __init__(self, model: ShardedModel, cluster: Cluster, staleness: int | None, slowdown: Floats) -> None:
        self._builder, self._cluster, self._plan = GraphBuilder(), cluster, model.plan
        self._group = _group(model.plan)
        self._servers = self._find_servers()
        self._buckets = model.buckets
        self._lead_s, self._segments_s = self._segments(model)
        self.compute_s = self._lead_s + self._segments_s.sum(axis=1)
        workers, steps = slowdown.shape
        self.last = np.zeros((workers, steps), dtype=np.int64)
        finished: list[int] = []
        for step in range(steps):
            updates: list[int] = []
            for worker in range(workers):
                bound = finished[step - staleness - 1] if staleness is not None and step > staleness else None
                updates += self._add_step(worker, step, slowdown[worker, step], bound)
            finished.append(self._add_instant(updates))
        names = [layer.name for layer in model.profile.layers]
        self.graph = self._builder.build(np.zeros(len(cluster.devices)), names)

    def _find_servers(self) -> tuple[int, ...]:
        synchronisation = self._plan.synchronisation
        collective = collectives.load(synchronisation.collective)
        rule = "only parameter servers serve workers one by one; use ps on a cluster with a server, or ps-workers"
        require(collective.updates_on_server, "collective", repr(synchronisation.collective), rule)
        return collective.servers(self._cluster, self._group, synchronisation.serving_workers)

    def _segments(self, model: ShardedModel) -> tuple[Floats, Floats]:
        """Seconds of each worker before its last backward pass, shape (workers,), and of the segments of that pass
        between buckets, shape (workers, buckets + 1).

        A worker computes without a pause, layers in order, so one task stands for all layers of a segment.
        """
        passes = np.stack([model.pass_seconds(i) for i in range(len(model.profile.layers))])  # (layers, 2, workers)
        speeds = np.array([self._cluster.devices[d].speed for d in self._group])  # (workers,)
        forward, backward = passes[:, 0] / speeds, passes[:, 1] / speeds  # (layers, workers)
        lead_s = forward.sum(axis=0) * self._plan.microbatches + backward.sum(axis=0) * (self._plan.microbatches - 1)
        # Backward passes run from the last layer to the first: backward_end_s[l] is when that of layer l ends.
        backward_end_s = np.cumsum(backward[::-1], axis=0)[::-1]  # (layers, workers)
        ready = np.array(
            [backward_end_s[min(piece.layer for piece in bucket.pieces)] for bucket in self._buckets]
        )  # (buckets, workers)
        ends = np.concatenate(
            [np.zeros((1, len(speeds))), np.maximum.accumulate(ready), backward_end_s[:1]]
        )  # (buckets + 2, workers)
        sizes = np.array([bucket.size_bytes for bucket in self._buckets] + [0.0])
        compression_s = self._plan.synchronisation.compression_s_per_byte * np.divide.outer(
            sizes, speeds
        )  # (buckets + 1, workers)
        return lead_s, (np.diff(ends, axis=0) + compression_s).T

    def _add_step(self, worker: int, step: int, slowdown: float, bound: int | None) -> list[int]:
        """Append one step of one worker; the tasks that apply its gradients."""
        builder, device = self._builder, self._group[worker]
        began = self._compute(Kind.FORWARD, device, self._lead_s[worker] * slowdown, step)
        builder.depend(began, [self.last[worker, step - 1]] if step else [])
        builder.depend(began, [] if bound is None else [bound])
        computed = [began]
        for seconds in self._segments_s[worker]:
            task = self._compute(Kind.BACKWARD, device, seconds * slowdown, step)
            builder.depend(task, computed[-1])
            computed.append(task)
        updates: list[int] = []
        pulls: list[int] = [computed[-1]]
        before: Sequence[int] = ()
        for number, bucket in enumerate(self._buckets):
            ready = computed[number + 1] if self._plan.synchronisation.overlap else computed[-1]
            pushed = [self._add_push(device, server, bucket, number, ready) for server in self._servers]
            if before:
                builder.depend([push for push, _, _ in pushed], before)
            before = [push for push, _, _ in pushed]
            updates += [update for _, update, _ in pushed]
            pulls += [pull for _, _, pull in pushed]
        self.last[worker, step] = self._add_instant(pulls)
        return updates

    def _compute(self, kind: Kind, device: int, seconds: float, priority: int) -> int:
        return int(self._builder.add(kind, 1, device=device, seconds=seconds, priority=priority)[0])

    def _add_push(self, worker: int, server: int, bucket: Bucket, number: int, ready: int) -> tuple[int, int, int]:
        """A part of a bucket's way to a server, its update there and the way back; a worker that serves stays home."""
        builder, count = self._builder, len(self._servers)
        owner = {"layer": bucket.pieces[0].layer, "shard": number}
        size = {"bytes": bucket.sent_bytes / count} if worker != server else {}
        there, back = Route(((worker, server),)), Route(((server, worker),))
        push = builder.add(Kind.SYNCHRONISATION, 1, device=server, route=builder.route(there), **size, **owner)
        seconds = bucket.update_s / count / self._cluster.devices[server].speed
        update = builder.add(Kind.UPDATE, 1, device=server, seconds=seconds, priority=-1, **owner)
        pull = builder.add(Kind.SYNCHRONISATION, 1, device=worker, route=builder.route(back), **size, **owner)
        builder.depend(push, ready)
        builder.depend(update, push)
        builder.depend(pull, update)
        return int(push[0]), int(update[0]), int(pull[0])

    def _add_instant(self, after: Sequence[int]) -> int:
        """A moment that comes when all of `after` have ended."""
        nowhere = self._builder.route(Route(((self._group[0], self._group[0]),)))
        task = int(self._builder.add(Kind.SYNCHRONISATION, 1, device=self._group[0], route=nowhere)[0])
        self._builder.depend(task, list(after))
        return task
