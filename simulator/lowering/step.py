"""ShardedModel, Cluster, Runtime -> TaskGraph.

One micro-batch is lowered, then repeated: every micro-batch has the same shards, though not always the same work. The
schedule adds the order in which each device runs its passes, and the synchronisation adds collectives and updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, zip_longest
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering import schedules
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.symmetry.equal_links import fits
from simulator.lowering.symmetry.symmetries import symmetries_of
from simulator.lowering.symmetry.symmetry import AsymmetryError
from simulator.lowering.tasks.backward_tasks import BackwardTasks
from simulator.lowering.tasks.buffer_broadcast import add_broadcast
from simulator.lowering.tasks.equal_ranks import keep_first_ranks
from simulator.lowering.tasks.exchange_tasks import add_exchanges
from simulator.lowering.tasks.gradients import add_synchronisation, static_bytes
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.launches import add_launches
from simulator.lowering.tasks.overlapped_products import overlap_products
from simulator.lowering.tasks.parameter_gathers import add_gathers
from simulator.lowering.tasks.passes import Passes, add_gradients, add_passes, scale_by_work
from simulator.lowering.tasks.recomputation import join_recomputations
from simulator.lowering.tasks.rendezvous import add_rendezvous
from simulator.lowering.tasks.weight_stashing import add_replica_updates, add_updates, stashed_bytes
from simulator.plan import Plan
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph
from simulator.workload import Profile


def lower(model: ShardedModel, cluster: Cluster, runtime: Runtime = IDEAL) -> TaskGraph:
    """The tasks of one training step of `model` on `cluster`, as `runtime` runs it.

    Raises InputError when the plan does not fit the profile, the cluster or its own schedule.
    """
    model.plan.check(model.profile, cluster)
    return _lowered(model, cluster, runtime)


def _lowered(model: ShardedModel, cluster: Cluster, runtime: Runtime) -> TaskGraph:
    """The same of a plan that is checked."""
    profile, plan, schedule = model.profile, model.plan, model.schedule
    builder, meets = GraphBuilder(), runtime.rendezvous and schedule.receives is not None
    passes = add_passes(builder, model, cluster, runtime)
    add_exchanges(builder, model, passes, own_buffers=meets)
    join_recomputations(builder, model, passes)
    if runtime.overlaps_products:
        overlap_products(builder, model)
    if model.symmetry and len(model.symmetry.ranks) > 1:
        passes = keep_first_ranks(builder, passes, model.symmetry.ranks)
    each_updates = schedule.stashes_weights and not schedule.double_buffered
    updates = add_updates(builder, model, cluster) if each_updates else {}
    per_microbatch = len(builder)
    builder.repeat(plan.microbatches, priority_step=2 * len(profile.layers))
    scale_by_work(builder, model, passes)
    starts = np.arange(plan.microbatches) * per_microbatch
    if not each_updates:
        each = plan.microbatches // model.sums_per_step if schedule.double_buffered else plan.microbatches
        further = np.delete(starts, slice(each, None, each))  # the first micro-batch of a sum adds to nothing
        add_gradients(builder, model, cluster, passes, further)
    apart = meets or runtime.pass_overhead_s > 0 or runtime.message_pause_s > 0
    orders = _add_order(builder, model, passes, starts, updates, apart)
    if meets:
        add_rendezvous(builder, orders, schedule)
    gathered = plan.states.stage == 3 or (plan.states.stage > 0 and runtime.overlaps_gathers)
    if gathered:
        add_gathers(builder, model, passes, starts)
    add_broadcast(builder, model, passes, starts)
    backwards = BackwardTasks(passes.last, passes.device, starts)
    delivered = add_synchronisation(builder, model, cluster, backwards, gathered=gathered)
    if schedule.stashes_weights:
        add_replica_updates(builder, model, cluster, passes, starts, delivered)
    _add_overheads(builder, runtime, orders, len(model.whole.devices), pipelined=meets)
    add_launches(builder, model, cluster, runtime, passes, starts, orders)
    names = [layer.name for layer in profile.layers]
    static = static_bytes(model, cluster, runtime)
    static[list(plan.devices)] += runtime.context_bytes + runtime.workspace_bytes
    if meets:
        static += _buffer_bytes(builder, len(static))
    if schedule.stashes_weights:
        static += stashed_bytes(model, cluster)
    return builder.build(static, names, runtime.launch_depth)


def lower_once(
    profile: Profile,
    plan: Plan,
    cluster: Cluster,
    runtime: Runtime = IDEAL,
    stragglers: Mapping[int, float] | None = None,
) -> LoweredModel:
    """As `lower`, but of equal replicas and ranks the first alone, where they are sure to run alike; see `symmetry`.

    stragglers: by device, how many times longer its tasks are going to take. Raises InputError as `lower` does.
    """
    plan.check(profile, cluster)
    alike = not plan.synchronisation.broadcast_bytes  # else one replica sends what the others receive
    for symmetry in symmetries_of(profile, plan, cluster, runtime, stragglers or {}) if alike else ():
        model = ShardedModel(profile, symmetry.plan, symmetry)
        try:
            graph = symmetry.joint(_lowered(model, cluster, runtime))
        except (AsymmetryError, InputError):  # what is wrong with the plan is said of the whole of it
            pass
        else:
            if fits(graph, cluster):
                return LoweredModel(model, graph)
    model = ShardedModel(profile, plan)
    return LoweredModel(model, _lowered(model, cluster, runtime))


class LoweredModel(NamedTuple):
    """A model and its tasks; where it has a symmetry, of the replicas, or their first ranks, that stand for all."""

    model: ShardedModel
    graph: TaskGraph


def _add_overheads(
    builder: GraphBuilder, runtime: Runtime, orders: list[list[Ints]], devices: int, pipelined: bool
) -> None:
    """Lengthen compute to that of the slowest of `devices`, and by what the runtime does besides: dividing gradients
    before an update, its own tasks."""
    seconds = builder.column("seconds")
    if runtime.rank_spread:
        seconds[builder.column("route") < 0] *= runtime.slowest_of(devices)
    if pipelined:
        seconds[builder.column("kind") == Kind.UPDATE] *= 1 + runtime.gradient_scaling
    if runtime.task_overhead_s:
        seconds[builder.column("route") < 0] += runtime.task_overhead_s
    for order in orders if runtime.pass_overhead_s else ():
        seconds[[tasks[0] for tasks in order]] += runtime.pass_overhead_s


def _buffer_bytes(builder: GraphBuilder, devices: int) -> Floats:
    """By device, the buffers into which a pipeline receives the activations and gradients of all micro-batches."""
    received = np.isin(builder.column("kind"), (Kind.ACTIVATION, Kind.GRADIENT))
    device, size = (builder.column(name)[received] for name in ("device", "bytes"))
    buffers = np.zeros(devices)
    np.add.at(buffers, device, size)
    return buffers


def _add_order(
    builder: GraphBuilder, model: ShardedModel, passes: Passes, starts: Ints, updates: Mapping[int, int], apart: bool
) -> list[list[Ints]]:
    """Chain each device's passes in the order of the plan's schedule; dataflow leaves them free.

    updates: by device, its task of one micro-batch that follows the backward pass. Returns, if they are wanted `apart`,
    the tasks of each pass of each device.
    """
    orders: list[list[Ints]] = []
    if model.schedule.order is None:
        return orders
    chunks_of: dict[tuple[int, ...], list[list[int]]] = {}
    for layers in model.stages:
        chunks_of.setdefault(model.placements[layers[0]].device_set, []).append(layers)
    computing, joined = set(passes.device.tolist()), model.schedule.joins_passes  # of equal ranks the first alone
    routed = np.array([layer.routing is not None for layer in model.profile.layers])
    of_experts = routed[builder.column("layer")] if joined else routed
    for rank, (devices, chunks) in enumerate(chunks_of.items()):
        distinct, which, microbatch = _instructions(
            model.plan.schedule, len(chunks_of), rank, model.plan.microbatches, len(chunks)
        )
        by_device = []
        for layers in chunks:
            forward = np.concatenate([passes.forward(layer) for layer in layers])
            forward = forward[np.argsort(passes.device[forward], kind="stable")]
            by_device.append((passes.device[forward], forward))
        for device in sorted(computing.intersection(devices)):
            own = [tasks[slice(*np.searchsorted(of_task, [device, device + 1]))] for of_task, tasks in by_device]
            then = {Kind.BACKWARD: [updates[device]]} if device in updates else {}
            first = [
                np.append(passes.of(own[chunk], kind), np.array(then.get(kind, []), dtype=np.int64))
                for kind, chunk in distinct
            ]  # of micro-batch 0
            lengths = np.array([len(tasks) for tasks in first])[which]
            tasks = np.concatenate([first[number] for number in which]) + np.repeat(starts[microbatch], lengths)
            by_pass = np.split(tasks, np.cumsum(lengths)[:-1]) if apart or joined else []
            if joined:
                kinds = [distinct[number][0] for number in which]
                tasks = np.concatenate(list(_joined(kinds, by_pass, of_experts)))
            builder.depend(tasks[1:], tasks[:-1])
            if apart:
                orders.append([own for own in by_pass if len(own)])
    return orders


def _joined(kinds: Sequence[Kind], by_pass: Sequence[Ints], of_experts: npt.NDArray[np.bool_]) -> Iterator[Ints]:
    """Passes in their order, but a forward pass beside the backward pass before it: a piece of either in turn.

    A pass is cut where its tasks begin and end to be `of_experts`, (tasks,), which other devices may have.
    """
    backward: list[Ints] = []
    for kind, tasks in zip(kinds, by_pass, strict=True):
        pieces = np.split(tasks, np.flatnonzero(np.diff(of_experts[tasks])) + 1)
        if kind == Kind.FORWARD and backward:
            yield from chain.from_iterable(zip_longest(backward, pieces, fillvalue=tasks[:0]))
            backward = []
        else:
            yield from backward
            backward = pieces if kind == Kind.BACKWARD else []
            yield from pieces if not backward else ()
    yield from backward


@lru_cache(maxsize=1024)
def _instructions(
    schedule: str, devices: int, rank: int, microbatches: int, chunks: int
) -> tuple[tuple[tuple[Kind, int], ...], Ints, Ints]:
    """The order of a device's passes: the different (kind, chunk), and of each pass which it is and its micro-batch."""
    make = schedules.load(schedule).order
    order = list(make(devices, rank, microbatches, chunks)) if make else []
    distinct = tuple(dict.fromkeys((kind, chunk) for kind, _, chunk in order))
    number = {passes: i for i, passes in enumerate(distinct)}
    which = np.array([number[kind, chunk] for kind, _, chunk in order], dtype=np.int64)
    return distinct, which, np.array([microbatch for _, microbatch, _ in order], dtype=np.int64)
