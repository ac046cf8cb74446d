"""Gradient synchronisation and update: the tasks of a step after and beside the backward pass."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.lowering.parameters.buckets import Bucket, update_seconds
from simulator.lowering.parameters.replicas import Replicas
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.backward_tasks import BackwardTasks, TasksOnDevices
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats, Ints, Kind


def add_synchronisation(
    builder: GraphBuilder, model: ShardedModel, cluster: Cluster, backwards: BackwardTasks, *, gathered: bool
) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Append the collectives, the optimizer's updates and, unless passes have `gathered` what they use, the gathers.

    Buckets of one group leave one after the other, as on one communicator: a bucket's collective begins on a device
    when that of the bucket before has ended there; to and from servers each message follows its like of the bucket
    before. The optimizer of a device runs once, after its whole backward pass and every synchronisation that it takes
    part in, as torch's does; where weights are stashed, each backward pass has an update of its own.

    Returns for every sum of a step the tasks that end it, with the devices that then hold the result.
    """
    plan, sums = model.plan, model.sums_per_step
    delivered: list[list[tuple[int, tuple[int, ...]]]] = []
    previous: dict[Hashable, _Sent] = {}
    steps_of = [model.steps(bucket, cluster) for bucket in model.buckets]
    setting = plan.synchronisation
    plain = setting.overlap and not setting.compression_s_per_byte and not plan.states.each_microbatch
    at_once = sums == 1 and plain and all(map(_is_one_task, model.buckets, steps_of))
    each = plan.microbatches // sums
    for number_of_sum in () if at_once else range(sums):
        summed = slice(number_of_sum * each, (number_of_sum + 1) * each)
        delivered.append([])
        for number, (bucket, steps) in enumerate(zip(model.buckets, steps_of, strict=True)):
            ready = _add_ready(builder, cluster, plan, bucket, number, summed, backwards)
            tasks = _add_steps(builder, bucket, number, steps, ready)
            delivered[-1] += [(task, step.delivers) for task, step in zip(tasks, steps, strict=True) if step.delivers]
            if bucket.members in previous:
                _follow(builder, plan, (steps, tasks), previous[bucket.members])
            previous[bucket.members] = steps, tasks
            if plan.states.each_microbatch:
                gradient_bytes = bucket.size_bytes * plan.states.gradient_ratio(model.profile.dtype)
                first = ready.tasks[np.searchsorted(ready.devices, bucket.group)]  # it is whole from there until summed
                builder.allocate(first, bucket.group, gradient_bytes)
                builder.allocate(tasks[-1], bucket.group, -gradient_bytes)
    if at_once:
        delivered.append(_add_sums(builder, model.buckets, [steps[0] for steps in steps_of], backwards))
    if not model.schedule.stashes_weights:
        updates = _add_updates_after(builder, model, cluster, backwards, [end for ends in delivered for end in ends])
        if plan.states.stage and not gathered:
            _add_gathers_after(builder, model, updates)
    return delivered


def _is_one_task(bucket: Bucket, steps: Sequence[CollectiveTask]) -> bool:
    """Whether a bucket's collective is one transfer that needs, and serves, all of its devices."""
    return (
        len(steps) == 1
        and len(steps[0].route.pairs if steps[0].route else ()) > 1
        and (steps[0].needs == steps[0].delivers == bucket.group)
    )


def _add_sums(
    builder: GraphBuilder, buckets: Sequence[Bucket], steps: Sequence[CollectiveTask], backwards: BackwardTasks
) -> list[tuple[int, tuple[int, ...]]]:
    """Append the collectives of all buckets at once, where each is one task and nothing comes between."""
    tasks = builder.add(
        Kind.SYNCHRONISATION,
        len(buckets),
        route=[builder.route(step.route) for step in steps if step.route],
        bytes=[step.bytes for step in steps],
        layer=[bucket.pieces[0].layer for bucket in buckets],
        shard=np.arange(len(buckets)),
    )
    shards = [[shard for piece in bucket.pieces for shard in piece.shards] for bucket in buckets]
    waiting = np.repeat(tasks, [len(of_bucket) for of_bucket in shards])
    last = backwards.last[np.array([shard for of_bucket in shards for shard in of_bucket], dtype=np.int64)]
    builder.depend(np.tile(waiting, len(backwards.starts)), np.add.outer(backwards.starts, last).ravel())
    previous: dict[Hashable, int] = {}
    for task, bucket in zip(tasks.tolist(), buckets, strict=True):
        if bucket.members in previous:
            builder.depend(task, previous[bucket.members])
        previous[bucket.members] = task
    return [(task, bucket.group) for task, bucket in zip(tasks.tolist(), buckets, strict=True)]


def _add_gathers_after(builder: GraphBuilder, model: ShardedModel, updates: Ints) -> None:
    """Append the gathers of parameters of which each device updates a slice, those of one group one after the other;
    updates: by device its task, or -1."""
    gathers = [(number, gather) for number, bucket in enumerate(model.buckets) for gather in model.gathers(bucket)]
    gathers.sort(key=lambda entry: entry[1].needs[0])  # of ranks that end together the first comes first
    tasks = add_gather_tasks(builder, model, gathers)
    waiting = np.repeat(tasks, [len(gather.needs) for _, gather in gathers])
    builder.depend(waiting, updates[[device for _, gather in gathers for device in gather.needs]])
    previous: dict[Hashable, int] = {}
    for task, (number, gather) in zip(tasks.tolist(), gathers, strict=True):
        group = model.buckets[number].members, gather.needs
        if group in previous:
            builder.depend(task, previous[group])
        previous[group] = task


def add_gather_tasks(
    builder: GraphBuilder, model: ShardedModel, gathers: Sequence[tuple[int, CollectiveTask]], **columns: npt.ArrayLike
) -> Ints:
    """Append gathers of parameters, (number of the bucket, what it takes); columns: what else is known of them."""
    distinct = {id(gather): gather for _, gather in gathers}
    routes = {key: builder.route(gather.route) for key, gather in distinct.items() if gather.route}
    return builder.add(
        Kind.PARAMETERS,
        len(gathers),
        route=[routes[id(gather)] for _, gather in gathers],
        bytes=[gather.bytes for _, gather in gathers],
        layer=[model.buckets[number].pieces[0].layer for number, _ in gathers],
        shard=[number for number, _ in gathers],
        **columns,
    )


def _add_updates_after(
    builder: GraphBuilder,
    model: ShardedModel,
    cluster: Cluster,
    backwards: BackwardTasks,
    delivered: Sequence[tuple[int, tuple[int, ...]]],
) -> Ints:
    """Append the optimizer's update of every device; delivered: (task, devices that hold its result).

    Returns the task of each device, -1 where it has none, shape (devices,).
    """
    devices = np.array(list(model.local_update_s), dtype=np.int64)
    seconds = np.array(list(model.local_update_s.values())) / np.array(cluster.speeds)[devices]
    last = np.iinfo(np.int64).max
    update = np.full(len(cluster.devices), -1)
    update[devices] = builder.add(Kind.UPDATE, len(devices), device=devices, seconds=seconds, priority=last)
    ends = np.array([device for _, holders in delivered for device in holders], dtype=np.int64)
    tasks = np.repeat([task for task, _ in delivered] or [0], [len(holders) for _, holders in delivered] or [0])
    every = np.add.outer(backwards.starts, backwards.last).ravel(), np.tile(backwards.device, len(backwards.starts))
    for after, on in ((tasks, ends), every):
        counts = update[on] >= 0
        builder.depend(update[on[counts]], after[counts])
    return update


def _add_ready(
    builder: GraphBuilder,
    cluster: Cluster,
    plan: Plan,
    bucket: Bucket,
    number: int,
    microbatches: slice,
    backwards: BackwardTasks,
) -> TasksOnDevices:
    """The tasks that make the gradient of a bucket's devices ready to leave; compression is appended here."""
    setting = plan.synchronisation
    ready = backwards.of(bucket.pieces, microbatches)
    if not setting.overlap:
        ready = ready.joined([backwards.whole.on(bucket.group)])
    seconds_at_speed_1 = setting.compression_s_per_byte * bucket.size_bytes
    if not seconds_at_speed_1:
        return ready
    group = np.array(bucket.group)
    owner = {"layer": bucket.pieces[0].layer, "shard": number, "priority": -1}
    seconds = seconds_at_speed_1 / np.array(cluster.speeds)[group]
    compression = builder.add(Kind.UPDATE, len(group), device=group, seconds=seconds, **owner)
    builder.depend(compression[np.searchsorted(group, ready.devices)], ready.tasks)
    return TasksOnDevices(compression, group)


def _add_steps(
    builder: GraphBuilder, bucket: Bucket, number: int, steps: Sequence[CollectiveTask], ready: TasksOnDevices
) -> list[int]:
    """Append a bucket's collective: its steps are owned by the bucket's first layer, shard = bucket number."""
    tasks: list[int] = []
    for step in steps:
        owner = {"layer": bucket.pieces[0].layer, "shard": number}
        if step.route is None:
            added = builder.add(Kind.UPDATE, 1, device=step.device, seconds=step.seconds, **owner)
        else:
            receiver = step.route.pairs[0][1] if len(step.route.pairs) == 1 else -1
            route = builder.route(step.route)
            added = builder.add(Kind.SYNCHRONISATION, 1, bytes=step.bytes, device=receiver, route=route, **owner)
        builder.depend(added, [tasks[i] for i in step.after])
        if step.needs:
            builder.depend(added, ready.on(step.needs).tasks)
        tasks.append(int(added[0]))
    return tasks


_Sent = tuple[list[CollectiveTask], list[int]]
"""The steps of a bucket's collective and their tasks."""


def _follow(builder: GraphBuilder, plan: Plan, sent: _Sent, before: _Sent) -> None:
    """Let a bucket leave after the one before it; terms that other devices need are summed without a server."""
    alike = [step.route for step in sent[0]] == [step.route for step in before[0]]
    if alike and collectives.load(plan.synchronisation.collective).updates_on_server:
        builder.depend(sent[1], before[1])
        return
    last = {device: task for step, task in zip(*before, strict=True) for device in step.delivers}
    for step, task in zip(*sent, strict=True):
        builder.depend(task, sorted({last[device] for device in step.needs if device in last}))


def addition_s(model: ShardedModel, piece: Replicas) -> float:
    """Seconds at speed 1 to add a gradient to another, as measured for its layer.

    Where it was not: it reads two tensors and writes one; SGD with momentum reads and writes eight tensors of that
    size in all (the buffer scaled: 2, the gradient added: 3, the parameter moved: 3), and both take as long as memory
    does.
    """
    layer = model.layer(piece.layer)
    if layer.accumulate_s is not None:
        return layer.accumulate_s * piece.parameter_bytes / layer.parameter_bytes
    return 3 / 8 * update_seconds(model.profile, piece)


def static_bytes(model: ShardedModel, cluster: Cluster, runtime: Runtime = IDEAL) -> Floats:
    """Bytes of parameters, gradients and optimizer state, shape (devices,).

    Servers hold them in place of the workers' state. Of what devices share out each of them holds a part.
    Raises InputError where parameters are to be updated on a server and the cluster has none.
    """
    devices: list[int] = []
    size_bytes: list[float] = []
    for holders, size, states in _holdings(model, cluster, runtime):
        devices += holders
        size_bytes += [size * ordered_sum(states)] * len(holders)
    on = np.array(devices, dtype=np.int64)
    return np.bincount(on, weights=size_bytes, minlength=len(cluster.devices)).astype(np.float64)


def static_parts(model: ShardedModel, cluster: Cluster, runtime: Runtime = IDEAL) -> dict[str, Floats]:
    """`static_bytes` by what is held: "parameters", "gradients" and "optimizer", each of shape (devices,)."""
    parts = {name: np.zeros(len(cluster.devices)) for name in ("parameters", "gradients", "optimizer")}
    for devices, size, states in _holdings(model, cluster, runtime):
        for held, share in zip(parts.values(), states, strict=True):
            held[devices] += size * share
    return parts


def _holdings(
    model: ShardedModel, cluster: Cluster, runtime: Runtime
) -> Iterator[tuple[list[int], float, tuple[float, float, float]]]:
    """(devices, bytes of a parameter piece, how many times of it they hold as parameters, gradients and optimizer)."""
    state, synchronisation, states = model.plan.optimizer_state, model.plan.synchronisation, model.plan.states
    collective, ratio = collectives.load(synchronisation.collective), states.gradient_ratio(model.profile.dtype)
    for piece in model.replicas:
        served = collective.updates_on_server and piece.is_shared
        part = 1 / model.shares(piece)
        parameters, gradients = part if states.stage == 3 else 1.0, ratio * (part if states.stage >= 2 else 1.0)
        gradients += runtime.bucket_copies and piece.is_shared and states.stage < 2
        yield list(piece.devices), piece.parameter_bytes, (parameters, gradients, 0.0 if served else state * part)
        servers = collective.servers(cluster, piece.devices, synchronisation.serving_workers) if served else ()
        for server in servers:
            copies = 0.0 if server in piece.devices else 1.0
            yield [server], piece.parameter_bytes / len(servers), (copies, copies, state)
