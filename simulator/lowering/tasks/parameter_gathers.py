"""Parameters that devices share out are gathered before the passes that use them: of ZeRO's third stage (FSDP) in every
micro-batch, of the others, whose gathers wait for the step before alone, in the first.

A bucket of gradients is also what is gathered together. The passes of a shard group use its buckets in an order, of
which each gather runs `prefetch` ahead:

    gathers      0  1     2     3  ...         gather i starts when gather i - 1 and
    passes          0  1     2     3  ...      the pass of bucket i - 1 - prefetch have ended

What was gathered is dropped after the pass, or with `keep_gathered` after the backward pass. What is recomputed needs
its buckets again in the order of the network, and keeps them until its backward pass is over. Of the other stages all
devices hold all parameters: the gathers of a step follow each other from its beginning. Where a parameter is tied to a
layer on other devices, such as another stage's, each of these homes gathers when its own passes come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.collectives import CollectiveTask
from simulator.distinct import runs
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.symmetry.symmetry import AsymmetryError
from simulator.lowering.tasks.gradients import add_gather_tasks
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.taskgraph import Floats, Ints, Kind, Route

Booleans = npt.NDArray[np.bool_]


def add_gathers(builder: GraphBuilder, model: ShardedModel, passes: Passes, starts: Ints) -> None:
    """Append the gathers of all micro-batches, which start at tasks `starts`, and let passes wait for theirs."""
    groups: dict[object, dict[int, _Gather]] = {}
    devices = {id(sharding): frozenset(sharding.devices) for sharding in model.plan.distinct_placements}
    for number, bucket in enumerate(model.buckets):
        shards = {shard for piece in bucket.pieces for shard in piece.shards}
        layers = sorted({*(np.searchsorted(passes.first, [*shards], side="right") - 1).tolist()})  # of tied ones all
        users = {layer: devices[id(model.placements[layer])] for layer in layers}
        for gather in model.gathers(bucket):
            whole = model.plan.states.stage < 3  # what is held by all is gathered for all layers at once
            apart = model.symmetry is None
            for own in [_Gather(gather, layers)] if whole else _of_homes(gather, users, bucket.size_bytes, apart=apart):
                pairs = frozenset(own.task.route.pairs) if own.task.route else ()
                groups.setdefault((own.task.needs, own.task.delivers, pairs), {})[number] = own
    for gathers in groups.values():
        _ShardGroup(builder, model, passes, gathers).add(starts)


class _Gather(NamedTuple):
    """What gathers a bucket on the devices to which it delivers, and the layers, ascending, that use it there."""

    task: CollectiveTask
    layers: Sequence[int]


def _of_homes(
    task: CollectiveTask, users: Mapping[int, frozenset[int]], size_bytes: float, *, apart: bool
) -> list[_Gather]:
    """A gather as it is or, where its members do not all use the same layers, one for each set of those that do.

    To each of these every other member then sends its part. users: the devices of each layer. Raises AsymmetryError
    where members may not be told apart.
    """
    members = task.needs
    homes: dict[tuple[int, ...], list[int]] = {}
    for device in members if len({*users.values()}) > 1 else ():
        homes.setdefault(tuple(layer for layer, devices in users.items() if device in devices), []).append(device)
    if len(homes) < 2:
        return [_Gather(task, [*users])]
    if not apart:
        raise AsymmetryError("devices gather tied parameters for different layers")
    part, gathers = size_bytes / len(members), []
    for layers, home in homes.items():
        route = Route(tuple((source, target) for target in home for source in members if source != target))
        gathers.append(_Gather(replace(task, route=route, bytes=part, delivers=tuple(home)), layers))
    return gathers


class _ShardGroup:
    """The gathers of one group of devices, by the number of their bucket; buckets are put in order of the network.

    members: the devices on which it gathers. owner, layer: every layer of every bucket, one bucket after the other, by
    the place of the bucket. begin: where each bucket's begin. of_layer: the first and the last forward task, in the
    first micro-batch, of each of these on each member, shape (2, layers, members).
    """

    def __init__(
        self, builder: GraphBuilder, model: ShardedModel, passes: Passes, gathers: Mapping[int, _Gather]
    ) -> None:
        self._builder, self._model, self._passes, self._gathers = builder, model, passes, gathers
        self._members = np.array(next(iter(gathers.values())).task.delivers)
        self._buckets = sorted(gathers, key=lambda number: gathers[number].layers[0])
        lengths = [len(gathers[number].layers) for number in self._buckets]
        self._owner = np.repeat(np.arange(len(lengths)), lengths)
        self._begin = np.cumsum(lengths) - lengths
        self._layer = np.array([layer for number in self._buckets for layer in gathers[number].layers])
        shards = np.diff(passes.first)[self._layer]
        tasks = runs(passes.first[self._layer], shards)
        entry = np.repeat(np.arange(len(shards)), shards)
        own = np.isin(passes.device[tasks], self._members)
        self._tasks, self._entry = tasks[own], entry[own]
        at = self._entry, np.searchsorted(self._members, passes.device[self._tasks])
        self._of_layer = np.full((2, len(self._layer), len(self._members)), -1)
        self._of_layer[0][at[0][::-1], at[1][::-1]] = self._tasks[::-1]  # what is written last stays
        self._of_layer[1][at] = self._tasks

    def add(self, starts: Ints) -> None:
        builder, states, total = self._builder, self._model.plan.states, self._passes.total
        uses = {kind: self._use(kind) for kind in (Kind.FORWARD, Kind.BACKWARD)}
        blocks = list(self._blocks({kind: order for kind, (order, _) in uses.items()}))
        places = np.concatenate([places for _, _, places in blocks])  # of every use, in order
        lengths = [len(places) for _, _, places in blocks]
        backward = np.repeat([kind == Kind.BACKWARD for kind, _, _ in blocks], lengths)
        microbatch = np.repeat([microbatch for _, microbatch, _ in blocks], lengths)
        start, way = starts[microbatch], backward.astype(np.int64)
        held_whole = states.stage < 3
        once = ~backward & (microbatch == 0) if held_whole else ~backward
        gathering = np.flatnonzero(once) if held_whole or states.keep_gathered else np.arange(len(places))
        numbers = np.array(self._buckets)[places[gathering]].tolist()
        gathers = [(number, self._gathers[number].task) for number in numbers]
        tasks = add_gather_tasks(builder, self._model, gathers, microbatch=microbatch[gathering])
        builder.depend(tasks[1:], tasks[:-1])
        if held_whole:  # where no schedule keeps later micro-batches behind the first, they wait themselves
            waiting = starts if self._model.schedule.order is None else starts[:1]
            used = np.tile(gathering, len(waiting))
            self._wait(np.tile(tasks, len(waiting)), places[used], backward[used], np.repeat(waiting, len(tasks)))
            return
        self._wait(tasks, places[gathering], backward[gathering], start[gathering])
        ended = np.stack([ends for _, ends in uses.values()])[way, places][gathering]  # (gathers, members)
        before = np.maximum.accumulate(np.where(ended[:, 0] < 0, -1, np.arange(len(tasks))))  # -1: none yet
        before = before[: max(len(tasks) - 1 - states.prefetch, 0)]
        waiting, before = tasks[len(tasks) - len(before) :][before >= 0], before[before >= 0]
        builder.depend(waiting[:, None], ended[before] + start[gathering][before][:, None])
        end = np.append(self._begin[1:], len(self._owner)) - 1
        last = np.stack([self._of_layer[1][end], self._of_layer[0][self._begin] + total])[way, places] + start[:, None]
        held = self._gathered_bytes()[places]
        dropping = np.flatnonzero(backward) if states.keep_gathered else gathering
        taken = np.broadcast_to(tasks[:, None], (len(tasks), len(self._members))), held[gathering]
        self._allocate([(gathering, *taken), (dropping, last[dropping], -held[dropping])])

    def _wait(self, gathers: Ints, places: Ints, backward: Booleans, start: Ints) -> None:
        """Let the passes over buckets, in one micro-batch each, wait for the tasks that gather these."""
        of_bucket = np.bincount(self._owner[self._entry])
        counts = of_bucket[places]
        before = np.cumsum(counts) - counts - (np.cumsum(of_bucket) - of_bucket)[places]
        forward = self._tasks[np.arange(counts.sum()) - np.repeat(before, counts)]
        gather, offset, back = np.repeat(gathers, counts), np.repeat(start, counts), np.repeat(backward, counts)
        self._builder.depend(forward + np.where(back, self._passes.total, 0) + offset, gather)
        again = self._passes.recompute[forward]
        computed = back & (again >= 0)
        self._builder.depend(again[computed] + offset[computed], gather[computed])

    def _use(self, kind: Kind) -> tuple[Ints, Ints]:
        """In which order a pass comes to the buckets, and by bucket the last tasks over it before it comes to the next,
        of the first micro-batch, shape (buckets, members); -1 where it comes to both at once.

        A bucket may have layers before and behind those of the next: what comes later does not keep others waiting.
        """
        owner, layer, (first, last), count = self._owner, self._layer, self._of_layer, len(self._buckets)
        turn, tasks = layer, last
        if kind == Kind.BACKWARD:
            layers = len(self._model.profile.layers)
            turn, tasks = (layers - layer) * (layers + 1) + layers, first + self._passes.total
            if self._model.segments:  # each is done again before the backward pass of its last layer
                ends = {i: segment[-1] for segment in self._model.segments for i in segment}
                again = np.flatnonzero((self._passes.recompute[last] >= 0).all(axis=1))
                of_segment = np.array([ends[position] for position in layer[again].tolist()], dtype=np.int64)
                turn = np.append(turn, (layers - of_segment) * (layers + 1) + layer[again])
                tasks = np.concatenate([tasks, self._passes.recompute[last[again]]])
                owner = np.append(owner, owner[again])
        comes = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(comes, owner, turn)
        order = np.argsort(comes, kind="stable")
        if kind == Kind.BACKWARD:
            order = count - 1 - np.argsort(comes[::-1], kind="stable")
        following = np.append(comes[order[1:]], np.iinfo(np.int64).max)[np.argsort(order)]
        before = np.flatnonzero(turn < following[owner])
        before = before[np.argsort(turn[before], kind="stable")]
        ended = np.full((count, len(self._members)), -1)
        ended[owner[before]] = tasks[before]  # what is written last stays
        return order, ended

    def _allocate(self, changes: Sequence[tuple[Ints, Ints, Floats]]) -> None:
        """Take or give back memory on all members, use after use: (uses, tasks by use and member, bytes by use)."""
        order = np.argsort(np.concatenate([uses for uses, _, _ in changes]), kind="stable")
        tasks = np.concatenate([tasks for _, tasks, _ in changes])[order]
        sizes = np.concatenate([sizes for _, _, sizes in changes])[order]
        members = len(self._members)
        self._builder.allocate(tasks.ravel(), np.tile(self._members, len(tasks)), np.repeat(sizes, members))

    def _blocks(self, orders: Mapping[Kind, Ints]) -> Iterator[tuple[Kind, int, Ints]]:
        """The passes of the group's first device in order: (kind, micro-batch, places of the buckets as it comes to
        them). orders: of all buckets, by kind of pass."""
        order, microbatches = self._model.schedule.order, self._model.plan.microbatches
        if order is None:
            for microbatch in range(microbatches):
                yield from ((kind, microbatch, orders[kind]) for kind in (Kind.FORWARD, Kind.BACKWARD))
            return
        stages, placements, device = self._model.stages, self._model.placements, int(self._members[0])
        homes = list(dict.fromkeys(placements[layers[0]].device_set for layers in stages))
        own = [layers for layers in stages if device in placements[layers[0]].device_set]
        rank = homes.index(placements[own[0][0]].device_set)
        first = self._layer[self._begin]
        inside = {
            (k, i): places[np.isin(first[places], own[i])] for k, places in orders.items() for i in range(len(own))
        }
        for kind, microbatch, chunk in order(len(homes), rank, microbatches, len(own)):
            if kind in orders:
                yield kind, microbatch, inside[kind, chunk]

    def _gathered_bytes(self) -> Floats:
        """What a device holds more of the parameters of each bucket while they are gathered, shape (buckets,)."""
        buckets = [self._model.buckets[number] for number in self._buckets]
        return np.array([bucket.size_bytes * (1 - 1 / self._model.shares(bucket)) for bucket in buckets])
