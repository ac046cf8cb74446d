"""ShardedModel: everything that follows from a profile and a plan, derived once and read by all who need it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.errors import require
from simulator.lowering import schedules
from simulator.lowering.costs import pass_costs
from simulator.lowering.costs.shard_costs import layer_seconds
from simulator.lowering.costs.typical_scaling import Bound
from simulator.lowering.exchange import shard_regions
from simulator.lowering.exchange.crossings import Crossings, Reads, crossings_of, reads_of
from simulator.lowering.exchange.exchange_pieces import EdgeEnd
from simulator.lowering.exchange.exchanges import Exchanges, exchanges_of
from simulator.lowering.exchange.shard_regions import Interval, shards
from simulator.lowering.parameters.buckets import Bucket, filled_buckets, update_seconds
from simulator.lowering.parameters.replicas import Replicas, replicas_of
from simulator.lowering.schedules import Schedule
from simulator.lowering.schedules._stages import stages_of
from simulator.lowering.symmetry.symmetry import Symmetry
from simulator.plan import Plan, Sharding
from simulator.taskgraph import Floats, Ints
from simulator.workload import Layer, Profile


@dataclass(frozen=True, eq=False)
class ShardedModel:
    """A profile cut into the shards of a plan. Layers are named by their position in the profile.

    What is derived is kept, so one instance serves lowering, volume, memory, hypergraph and executor. The plan need not
    fit any cluster yet: `Plan.check` says whether it does. symmetry: where `plan` is that of some of its replicas.
    """

    profile: Profile
    plan: Plan
    symmetry: Symmetry | None = None

    @property
    def whole(self) -> Plan:
        """The plan of all replicas."""
        return self.symmetry.whole if self.symmetry else self.plan

    @property
    def replicas_alike(self) -> int:
        """How many replicas of the model this one stands for."""
        return self.symmetry.replicas if self.symmetry else 1

    @property
    def replica_classes(self) -> Ints:
        """By replica of the whole, the number of the replica in `plan` that stands for it, shape (replicas,)."""
        return self.symmetry.class_of if self.symmetry else np.zeros(1, dtype=np.int64)

    @property
    def rank_classes(self) -> Ints:
        """The same by rank of every replica, shape (replicas x ranks,): the first rank stands for all."""
        return np.repeat(self.replica_classes, len(self.symmetry.ranks) if self.symmetry else 1)

    def of_all(self, values: Floats) -> Floats:
        """Values of the shards of a layer, (..., shards), as the shards of all replicas have them."""
        classes, ahead = self.replica_classes, values.shape[:-1]
        of_each = values.reshape(*ahead, classes.max() + 1, -1)
        return of_each[..., classes, :].reshape(*ahead, -1)

    def represented(self, devices: int) -> Ints:
        """By device of a cluster, the one whose tasks stand for its own, shape (devices,)."""
        return self.symmetry.represented(devices) if self.symmetry else np.arange(devices)

    @cached_property
    def placements(self) -> tuple[Sharding, ...]:
        """The sharding of each layer."""
        return tuple(self.plan.placements[layer.name] for layer in self.profile.layers)

    @cached_property
    def devices(self) -> tuple[Ints, ...]:
        """For each layer the device of every shard, shape (shards,)."""
        made = {id(each): np.array(each.devices, dtype=np.int64) for each in self.plan.distinct_placements}
        return tuple(made[id(sharding)] for sharding in self.placements)

    @cached_property
    def schedule(self) -> Schedule:
        """The plan's schedule. Raises UnknownNameError."""
        return schedules.load(self.plan.schedule)

    @cached_property
    def stages(self) -> list[list[int]]:
        """The layers of each stage, in order along the network. Raises InputError where a schedule has none."""
        return stages_of(self.profile, self.plan)

    @cached_property
    def replicas(self) -> tuple[Replicas, ...]:
        """Every parameter piece with the devices that use it; where ranks are counted, those of the first ranks."""
        first_of = self.symmetry.of_first_ranks if self.symmetry and len(self.symmetry.ranks) > 1 else None
        return tuple(replicas_of(self.profile, self.plan.placements, self.replicas_alike, first_of))

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """What travels together when gradients are synchronised, in the order in which it becomes ready."""
        stage_of = [0] * len(self.placements)
        for number, layers in enumerate(self.stages) if self.schedule.several_stages else ():
            for layer in layers:
                stage_of[layer] = number
        users = [len(self._users(piece)) for piece in self.replicas]
        return tuple(filled_buckets(self.profile, self.plan, self.replicas, stage_of, users))

    def steps(self, bucket: Bucket, cluster: Cluster) -> list[CollectiveTask]:
        """The collective that sums a bucket, in the devices of this plan; see `Symmetry.steps`."""
        return self.symmetry.steps(bucket, cluster) if self.symmetry else bucket.steps(cluster, self.plan)

    def gathers(self, bucket: Bucket) -> list[CollectiveTask]:
        """The gathers of a bucket's parameters, in the same way."""
        return self.symmetry.gathers(bucket) if self.symmetry else bucket.gathers(self.plan)

    def shares(self, shared: Bucket | Replicas) -> int:
        """Among how many devices each state of a bucket or piece is shared out."""
        states = self.plan.states
        return states.shares(self._users(shared)) if states.stage else 1

    def _users(self, shared: Bucket | Replicas) -> tuple[int, ...]:
        """The devices of all replicas that need the sum of a bucket or piece."""
        return self.symmetry.users(shared)[0] if self.symmetry else shared.devices

    @property
    def sums_per_step(self) -> int:
        """How often a step sums the gradient of a parameter over its users. Raises InputError on an unfinished sum."""
        if self.schedule.double_buffered:
            microbatches, stages = self.plan.microbatches, len(self.stages)
            rule = f"{self.schedule.name} adds up the gradients of {stages} at a time; use a multiple of {stages}"
            require(microbatches % stages == 0, "microbatches", microbatches, rule)
            return microbatches // stages
        every = self.plan.states.each_microbatch or self.schedule.stashes_weights
        return self.plan.microbatches if every else 1

    def sum_of(self, microbatch: int) -> int:
        """The number, of a step's sums of gradients, of the one that a micro-batch adds to."""
        return microbatch * self.sums_per_step // self.plan.microbatches

    @cached_property
    def local_update_s(self) -> Mapping[int, float]:
        """By device, the seconds at speed 1 of its optimizer, for the parameters that no server updates."""
        on_server = collectives.load(self.plan.synchronisation.collective).updates_on_server
        seconds: dict[int, float] = {}
        for piece in self.replicas:
            if not (on_server and piece.is_shared):
                of_each = update_seconds(self.profile, piece) / self.shares(piece)
                for device in piece.devices:
                    seconds[device] = seconds.get(device, 0.0) + of_each
        return dict(sorted(seconds.items()))

    def layer(self, position: int) -> Layer:
        return self.profile.layers[position]

    def intervals(self, position: int) -> list[list[Interval]]:
        """The intervals by (sample, channel, height, width) whose product are the layer's shards."""
        sharding = self.placements[position]
        return shards(self.layer(position), self.plan.microbatch_size, sharding.degrees, sharding.samples)

    def sample_intervals(self, position: int) -> Ints:
        """The samples of a micro-batch of which each of the layer's shards is, (first, last), shape (shards, 2)."""
        samples = np.array(self.intervals(position)[0], dtype=np.int64)  # (parts by sample, 2)
        return np.repeat(samples, len(self.devices[position]) // len(samples), axis=0)

    def reads(self, position: int) -> Reads:
        """Every (producing shard, reading shard) pair of the layer's output, in one micro-batch."""
        return reads_of(self.profile, self.plan.placements, self.plan.microbatch_size, position)

    def ends(self, position: int, reads: Reads) -> tuple[Ints, Ints]:
        """The devices of producer and reader of each of the layer's `reads`, each of shape (reads,)."""
        source = self.devices[position][reads.producer]
        target = np.zeros(len(source), dtype=np.int64)
        for consumer in self.profile.consumers[position]:
            of_consumer = reads.consumer == consumer
            target[of_consumer] = self.devices[consumer][reads.shard[of_consumer]]
        return source, target

    @cached_property
    def has_plain_edge(self) -> tuple[bool, ...]:
        """By layer, whether its output just goes from each shard to its readers: no sums, copies or collectives."""
        plain = [
            sharding.reduce == sharding.copy == 1 and not layer.routing
            for sharding, layer in zip(self.placements, self.profile.layers, strict=True)
        ]
        readers, messages = self.profile.consumers, self.plan.exchange == "messages"
        once = not (self.plan.recomputed or self.plan.received_again)
        return tuple(
            messages
            and all(plain[other] for other in (i, *readers[i]))
            and (once or not (self.recomputed_readers(i) or self.receiving_again(i)))
            for i in range(len(plain))
        )

    @cached_property
    def segments(self) -> tuple[tuple[int, ...], ...]:
        """The layers of each segment that is recomputed as a whole, ascending."""
        index = self.profile.index
        return tuple(tuple(sorted(index[name] for name in segment)) for segment in self.plan.recomputed)

    @cached_property
    def segment_of(self) -> Mapping[int, int]:
        """By layer, the number of the segment that it is recomputed with."""
        return {layer: number for number, segment in enumerate(self.segments) for layer in segment}

    def recomputed_readers(self, position: int) -> tuple[int, ...]:
        """The layer's readers that are recomputed together with it."""
        own = self.segment_of.get(position)
        readers = self.profile.consumers[position]
        return () if own is None else tuple(reader for reader in readers if self.segment_of.get(reader) == own)

    def receiving_again(self, position: int) -> tuple[int, ...]:
        """The layer's readers, not recomputed with it, that drop what they receive of it and receive it again: all but
        experts, at which tokens stay."""
        if self.layer(position).name not in self.plan.received_again:
            return ()
        recomputed = self.recomputed_readers(position)
        readers = (reader for reader in self.profile.consumers[position] if not self.layer(reader).routing)
        return tuple(reader for reader in readers if reader not in recomputed)

    def exchanges(self, position: int, readers: Sequence[int] | None = None) -> Exchanges:
        """What moves of the layer's output and of its gradient in one micro-batch; readers: all, if left out.

        Layers alike that are cut, and read, alike share the two directions, in all plans of a profile.
        """
        consumers = self.profile.consumers[position]
        reading = consumers if readers is None else readers
        ends = [self.placements[i] for i in (position, *reading)]
        edge = self.profile.read_alike[position], tuple(map(consumers.index, reading))
        key = *edge, tuple(map(id, ends))
        if key not in self._exchanges:
            number = {device: i for i, device in enumerate(dict.fromkeys(d for end in ends for d in end.devices))}
            cuts = tuple((end.shape, end.samples, tuple(map(number.__getitem__, end.devices))) for end in ends)
            known = self.profile.kept.get(
                ("exchanges", *edge, self.plan.microbatch_size, self.plan.exchange, cuts),
                lambda: exchanges_of(*self.edge(position, readers), self.plan.exchange),
                sum(len(end.devices) for end in ends),
            )
            self._exchanges[key] = replace(known, devices=np.array(list(number), dtype=np.int64))
        return self._exchanges[key]

    @cached_property
    def _exchanges(self) -> dict[Hashable, Exchanges]:
        return {}

    def edge(self, position: int, readers: Sequence[int] | None = None) -> tuple[EdgeEnd, list[EdgeEnd]]:
        """The layer's shards as makers of its output, and those of its readers as readers of it."""
        layer, sharding = self.layer(position), self.placements[position]
        own = EdgeEnd.of(self.intervals(position), sharding, layer.routing)
        ends = []
        for consumer in self.profile.consumers[position] if readers is None else readers:
            reader, split = self.layer(consumer), self.placements[consumer]
            regions = shard_regions.reads(self.profile, reader, layer, self.intervals(consumer), split.reduce)
            ends.append(EdgeEnd.of(regions, split, reader.routing))
        return own, ends

    def crossings(self, position: int, reads: Reads) -> Crossings:
        """What of the layer's output crosses between devices, of its `reads`."""
        return crossings_of(reads, *self.ends(position, reads))

    @cached_property
    def cuts(self) -> tuple[object, ...]:
        """For each layer what stands for its cut, and the devices of its shards, in all plans of the profile."""
        known = {
            id(each): self.profile.kept.get(("cut", each.shape, each.samples, each.devices), object)
            for each in self.plan.distinct_placements
        }
        return tuple(known[id(sharding)] for sharding in self.placements)

    def shard_elements(self, position: int) -> Floats:
        """Output elements of each shard of one micro-batch, shape (shards,)."""
        return pass_costs.shard_elements(self.layer(position), self.intervals(position), self.placements[position])

    def pass_seconds(self, *positions: int, bound: Bound = "typical") -> Floats:
        """(forward, backward) seconds at speed 1 of each shard of one micro-batch of layers that are cut alike, shape
        (2, shards of all).

        bound: as shard_seconds has it. Layers alike that are cut alike share the answer, in all plans of a profile.
        """
        profile, sharding = self.profile, self.placements[positions[0]]
        if len(sharding.devices) == sharding.degrees[0] and not any(self.layer(i).routing for i in positions):
            samples = [last - first for first, last in self.intervals(positions[0])[0]]
            of_size = {size: layer_seconds(profile, size, bound)[[*positions]] for size in set(samples)}
            return np.ascontiguousarray(np.stack([of_size[size] for size in samples], axis=1).reshape(-1, 2).T)

        def seconds(position: int) -> Floats:
            layer, intervals = self.layer(position), self.intervals(position)
            return pass_costs.pass_seconds(profile, layer, intervals, sharding, bound)

        cut = self.plan.microbatch_size, sharding.shape, sharding.samples, bound
        kept = partial(profile.kept.get, size=len(sharding.devices))
        made = [kept(("pass_seconds", profile.alike[i], *cut), partial(seconds, i)) for i in positions]
        return np.concatenate(made, axis=1)

    def pass_bytes(self, *positions: int) -> Floats:
        """(saved, output, working, kept) bytes of each shard of one micro-batch of layers that are cut alike, shape
        (4, shards of all)."""
        kinds = [(self.layer(i).output_shape, self.layer(i).routing) for i in positions]
        elements = {kind: self.shard_elements(i) for kind, i in dict(zip(kinds, positions, strict=True)).items()}
        reduce = self.placements[positions[0]].reduce
        return pass_costs.pass_bytes(self.profile, positions, np.array([elements[kind] for kind in kinds]), reduce)
