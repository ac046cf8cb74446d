"""ZeRO's third stage (FSDP): parameters that devices share out are gathered before the passes that use them.

A bucket of gradients is also what is gathered together. The passes of a shard group use its buckets in an order, of
which each gather runs `prefetch` ahead:

    gathers      0  1     2     3  ...         gather i starts when gather i - 1 and
    passes          0  1     2     3  ...      the pass of bucket i - 1 - prefetch have ended

What was gathered is dropped after the pass, or with `keep_gathered` after the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import add_gather_tasks
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.taskgraph import Floats, Ints, Kind


def add_gathers(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, starts: Ints) -> None:
    """Append the gathers of all micro-batches, which start at tasks `starts`, and let passes wait for theirs."""
    groups: dict[object, dict[int, CollectiveTask]] = {}
    for number, bucket in enumerate(model.buckets):
        for gather in model.gathers(bucket, cluster):
            groups.setdefault((gather.needs, bucket.alike), {})[number] = gather
    for gathers in groups.values():
        _ShardGroup(builder, model, passes, gathers).add(starts)


class _ShardGroup:
    """The gathers of one group of devices, by the number of their bucket; buckets are put in order of the network.

    tasks: the forward tasks of the first micro-batch over each bucket's layers on the group's devices, one bucket after
    the other; those of the bucket in place p begin at begin[p].
    """

    def __init__(
        self, builder: GraphBuilder, model: ShardedModel, passes: Passes, gathers: Mapping[int, CollectiveTask]
    ) -> None:
        self._builder, self._model, self._passes, self._gathers = builder, model, passes, gathers
        self._members = np.array(next(iter(gathers.values())).needs)
        layers = [sorted({piece.layer for piece in model.buckets[number].pieces}) for number in gathers]
        tasks = [np.concatenate([passes.forward(layer) for layer in of_bucket]) for of_bucket in layers]
        owner, tasks = np.repeat(np.arange(len(tasks)), [*map(len, tasks)]), np.concatenate(tasks)
        own = np.isin(passes.device[tasks], self._members)
        owner, tasks = owner[own], tasks[own]
        counts = np.bincount(owner)
        order = np.argsort(tasks[np.cumsum(counts) - counts], kind="stable")
        self._buckets = np.array([*gathers])[order]
        self._tasks = tasks[np.argsort(np.argsort(order)[owner], kind="stable")]
        self._counts = counts[order]
        self._begin = np.cumsum(self._counts) - self._counts

    def add(self, starts: Ints) -> None:
        builder, states = self._builder, self._model.plan.states
        blocks = list(self._blocks())
        places = np.concatenate([places for _, _, places in blocks])  # of every use, in order
        lengths = [len(places) for _, _, places in blocks]
        backward = np.repeat([kind == Kind.BACKWARD for kind, _, _ in blocks], lengths)
        microbatch = np.repeat([microbatch for _, microbatch, _ in blocks], lengths)
        start = starts[microbatch]
        last = self._last()[backward.astype(np.int64), places] + start[:, None]  # (uses, members)
        gathering = np.flatnonzero(~backward) if states.keep_gathered else np.arange(len(places))
        dropping = np.flatnonzero(backward) if states.keep_gathered else gathering
        numbers = self._buckets[places[gathering]].tolist()
        gathers = [(number, self._gathers[number]) for number in numbers]
        tasks = add_gather_tasks(builder, self._model, gathers, microbatch=microbatch[gathering])
        builder.depend(tasks[1:], tasks[:-1])
        ahead = 1 + states.prefetch
        builder.depend(tasks[ahead:, None], last[gathering][: len(tasks) - min(ahead, len(tasks))])
        counts = self._counts[places[gathering]]
        along = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - self._begin[places[gathering]], counts)
        forward, gather, offset = self._tasks[along], np.repeat(tasks, counts), np.repeat(start[gathering], counts)
        back = np.repeat(backward[gathering], counts)
        builder.depend(forward + np.where(back, self._passes.total, 0) + offset, gather)
        again = self._passes.recompute[forward]
        computed = back & (again >= 0)
        builder.depend(again[computed] + offset[computed], gather[computed])
        held = self._gathered_bytes()[places]
        taken = np.broadcast_to(tasks[:, None], (len(tasks), len(self._members))), held[gathering]
        self._allocate([(gathering, *taken), (dropping, last[dropping], -held[dropping])])

    def _allocate(self, changes: Sequence[tuple[Ints, Ints, Floats]]) -> None:
        """Take or give back memory on all members, use after use: (uses, tasks by use and member, bytes by use)."""
        order = np.argsort(np.concatenate([uses for uses, _, _ in changes]), kind="stable")
        tasks = np.concatenate([tasks for _, tasks, _ in changes])[order]
        sizes = np.concatenate([sizes for _, _, sizes in changes])[order]
        members = len(self._members)
        self._builder.allocate(tasks.ravel(), np.tile(self._members, len(tasks)), np.repeat(sizes, members))

    def _blocks(self) -> Iterator[tuple[Kind, int, Ints]]:
        """The passes of the group's first device, (kind, micro-batch, places of the buckets that it uses), in order."""
        order, microbatches = self._model.schedule.order, self._model.plan.microbatches
        places = np.arange(len(self._buckets))
        if order is None:
            for microbatch in range(microbatches):
                yield Kind.FORWARD, microbatch, places
                yield Kind.BACKWARD, microbatch, places[::-1]
            return
        stages, placements, device = self._model.stages, self._model.placements, int(self._members[0])
        homes = list(dict.fromkeys(placements[layers[0]].device_set for layers in stages))
        own = [layers for layers in stages if device in placements[layers[0]].device_set]
        rank = homes.index(placements[own[0][0]].device_set)
        last_layer = [self._model.buckets[number].pieces[-1].layer for number in self._buckets.tolist()]
        inside = [np.flatnonzero(np.isin(last_layer, layers)) for layers in own]
        for kind, microbatch, chunk in order(len(homes), rank, microbatches, len(own)):
            if kind in (Kind.FORWARD, Kind.BACKWARD):
                yield kind, microbatch, inside[chunk] if kind == Kind.FORWARD else inside[chunk][::-1]

    def _last(self) -> Ints:
        """The last task of the forward and of the backward pass of each bucket on each of the group's devices, in the
        first micro-batch, shape (2, buckets, members)."""
        place = np.repeat(np.arange(len(self._counts)), self._counts)
        at = place, np.searchsorted(self._members, self._passes.device[self._tasks])
        last = np.zeros((2, len(self._counts), len(self._members)), dtype=np.int64)
        last[0][at] = self._tasks  # of those of one device the one that is written last stays
        last[1][at[0][::-1], at[1][::-1]] = self._tasks[::-1] + self._passes.total
        return last

    def _gathered_bytes(self) -> Floats:
        """What a device holds more of the parameters of each bucket while they are gathered, shape (buckets,)."""
        buckets = [self._model.buckets[number] for number in self._buckets.tolist()]
        return np.array([bucket.size_bytes * (1 - 1 / self._model.shares(bucket)) for bucket in buckets])
