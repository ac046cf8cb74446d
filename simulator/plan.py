"""Who computes which shard: a Plan gives every layer a Sharding, and the step a schedule.

The notation is OptCNN's (Jia et al., ICML 2018, section 4: a layer's parallelization configuration by
sample, channel, height, width) with an arbitrary map in place of "shard i on device i", and two axes more: reduce
(DTensor's Partial: shards hold terms of a sum) and copy (Replicate: shards compute the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator import plan_rules
from simulator.cluster import Cluster
from simulator.errors import InputError, require_name
from simulator.parameter_states import REPLICATED, ParameterStates
from simulator.recompute_segments import recompute_segments, stopped_early
from simulator.runtime import IDEAL, Runtime
from simulator.sample_work import drawn_work, require_work
from simulator.workload import DTYPE_BYTES, Profile

Degrees = tuple[int, int, int, int]
AXES = (*plan_rules.BOX_AXES, "reduce", "copy")
"""All axes of a sharding, in the order of its devices."""
OPTIMIZERS: Mapping[str, float] = {"sgd": 0.0, "momentum": 1.0, "adam": 2.0, "mixed-adam": 6.0}
"""Bytes of state that an optimizer keeps per byte of parameters; mixed-adam: of 2-byte parameters a 4-byte copy and two
4-byte moments."""
EXCHANGES: Mapping[str, str] = {
    "messages": "each piece from each device to each that needs it",
    "collectives": "the all-gather, reduce-scatter, all-reduce or all-to-all that two placements call for, if one does",
    "scattered": "as collectives, but from copies to as many copies elsewhere each sends a part, gathered over there",
}
"""How activations and their gradients cross between devices."""
FIRST_BUCKET_BYTES = 2**20
"""torch DDP's first bucket where its bucket_cap_mb is left out: small, so that the first all-reduce leaves early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How one layer is split and where its shards live."""

    degrees: Degrees = (1, 1, 1, 1)
    """Parts by (sample, channel, height, width), disjoint boxes of the output; a sequence's length is its height."""
    reduce: int = 1
    """Parts of the contraction: each shard holds a term of its box, a sum over its part of the input channels."""
    copy: int = 1
    """How many devices compute the same shard."""
    devices: tuple[int, ...]
    """The device of each shard, flattened in row-major order of `shape`."""
    samples: tuple[int, ...] = ()
    """How many of a micro-batch each part by sample has; empty: as equal as integers allow."""

    def __post_init__(self) -> None:
        plan_rules.require_sharding(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Degrees by (sample, channel, height, width, reduce, copy)."""
        return (*self.degrees, self.reduce, self.copy)

    @property
    def axes(self) -> dict[str, int]:
        """The degree of each axis by its name."""
        return dict(zip(AXES, self.shape, strict=True))

    @property
    def array(self) -> npt.NDArray[np.int64]:
        """Devices as an array of shape `shape`."""
        return np.array(self.devices, dtype=np.int64).reshape(self.shape)

    @property
    def device_set(self) -> tuple[int, ...]:
        """The distinct devices, ascending."""
        return tuple(sorted(set(self.devices)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronisation:
    """How replicas of a parameter agree on its gradient."""

    collective: str = "ring"
    """A name in `simulator.collectives`."""
    bucket_bytes: int = 25 * 2**20
    """Gradients that become ready one after another on the same devices join a bucket until it holds so much; torch
    DDP's default."""
    bucket_bytes_per_device: int = 0
    """A bucket holds so much for each device that sums it where that is more, so that large groups do not wait for
    latencies; Megatron Core holds a million parameters for each."""
    first_bucket_bytes: int | None = None
    """What the first bucket of the same devices holds; None: as much as the others. torch DDP takes FIRST_BUCKET_BYTES
    where it is left its default size."""
    overlap: bool = True
    """A bucket leaves as soon as it is full; without it, when the whole backward pass has ended."""
    serving_workers: int | None = None
    """How many serve in "ps-workers"; None: one per host."""
    half_precision: bool = False
    """Gradients travel in 16 bits."""
    compression_ratio: float = 1.0
    """They are made so many times smaller beyond that."""
    compression_s_per_byte: float = 0.0
    """What that takes each device, at speed 1, by byte of its gradient, before a bucket leaves."""
    broadcast_bytes: float = 0.0
    """Of buffers, such as the statistics of batch norm, which the plan's first device sends all others before a step's
    first forward pass, as torch's DDP does unless it is told not to."""

    def __post_init__(self) -> None:
        plan_rules.require_synchronisation(self)

    def filled_bytes(self, devices: int, *, first: bool = False) -> int:
        """At how many bytes of gradients a bucket that `devices` sum is full; first: the first of the same ones."""
        own = self.first_bucket_bytes if first else None
        return max(self.bucket_bytes, self.bucket_bytes_per_device * devices) if own is None else own

    def sent_bytes(self, gradient_bytes: float, dtype: str) -> float:
        """What travels of a gradient of `gradient_bytes` whose elements are of `dtype`."""
        narrower = DTYPE_BYTES[dtype] / 2 if self.half_precision else 1.0
        return gradient_bytes / narrower / self.compression_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What a strategy has decided: a sharding for every layer (by name), and of the step what it decides itself.

    microbatches, schedule: None where the strategy leaves them to the step. recomputed, exchange, received_again, turn:
    see Plan. states: what replicas share out where the step does not say. strategy: the one whose placements these are,
    where a strategy has taken over those of another.
    """

    placements: Mapping[str, Sharding]
    microbatches: int | None = None
    schedule: str | None = None
    recomputed: tuple[tuple[str, ...], ...] = ()
    exchange: str = "messages"
    received_again: tuple[str, ...] = ()
    turn: str = ""
    states: ParameterStates = REPLICATED
    strategy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """Of a Plan what is asked; what is left open is a strategy's to decide. Raises InputError as Plan does."""

    batch_size: int
    """Samples of a step."""
    microbatches: int | None = None
    """Equal parts of the batch; None: open."""
    schedule: str | None = None
    """None: open."""
    synchronisation: Synchronisation = Synchronisation()
    """Of gradients."""
    optimizer_state: float | None = None
    """Bytes per byte of parameters; None: open."""
    states: ParameterStates = REPLICATED
    """What users of a parameter share out."""
    recompute: str = ""
    """"stages" or a number of segments (`recompute_segments`), where the strategy leaves recomputation open."""
    work: tuple[float, ...] = ()
    """Empty: drawn from what the profile says of it, if anything."""
    runtime: Runtime = IDEAL
    """The software that will run the step, for what it recomputes and strategies that simulate it; the plan does not
    keep it."""

    def __post_init__(self) -> None:
        microbatches = 1 if self.microbatches is None else self.microbatches
        plan_rules.require_step(self.batch_size, microbatches, self.optimizer_ratio)

    @property
    def optimizer_ratio(self) -> float:
        """Bytes of optimizer state per byte of parameters, momentum's where nothing is asked."""
        return OPTIMIZERS["momentum"] if self.optimizer_state is None else self.optimizer_state

    @property
    def microbatch_size(self) -> int:
        """Samples of one micro-batch, the whole batch where nothing is asked."""
        return self.batch_size // (self.microbatches or 1)

    def plan(self, profile: Profile, partition: Partition, strategy: str = "") -> Plan:
        """The plan of this step with what the strategy of that name has decided. Raises InputError."""
        recomputed = partition.recomputed
        if self.recompute and not recomputed:
            device_sets = {name: sharding.device_set for name, sharding in partition.placements.items()}
            recomputed = recompute_segments(profile, device_sets, self.recompute)
        if self.runtime.stops_recomputation:
            recomputed = stopped_early(profile, recomputed)
        return Plan(
            model=profile.model,
            batch_size=self.batch_size,
            placements=partition.placements,
            microbatches=partition.microbatches or self.microbatches or 1,
            schedule=self.schedule or partition.schedule or "dataflow",
            synchronisation=self.synchronisation,
            optimizer_state=self.optimizer_ratio,
            states=self._shared(partition.states),
            recomputed=recomputed,
            exchange=partition.exchange,
            received_again=partition.received_again,
            turn=partition.turn,
            work=self.work or drawn_work(self.batch_size, profile.work_deviation),
            strategy=f"{strategy} (as {partition.strategy})" if partition.strategy else strategy,
        )

    def _shared(self, own: ParameterStates) -> ParameterStates:
        """The states asked for; the strategy's stage and groups where nobody asks for others."""
        if self.states == REPLICATED:
            return own
        return replace(self.states, stage=self.states.stage or own.stage, group=self.states.group or own.group)


def split_settings(values: Mapping[str, Any]) -> tuple[StepSettings, dict[str, Any]]:
    """The settings of the step among `values` by name, and the others, which are options of a strategy.

    Raises InputError as StepSettings does.
    """
    names = {field.name for field in fields(StepSettings)}
    step = StepSettings(**{name: value for name, value in values.items() if name in names})
    return step, {name: value for name, value in values.items() if name not in names}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sharding for every layer, and how a step runs: micro-batches, schedule, gradients, states, recomputation."""

    model: str
    """The profile's."""
    batch_size: int
    """Samples of one step on all devices."""
    placements: Mapping[str, Sharding]
    """By layer."""
    microbatches: int = 1
    """Equal parts of the batch."""
    schedule: str = "dataflow"
    """A name in `simulator.lowering.schedules`."""
    synchronisation: Synchronisation = Synchronisation()
    """Of gradients."""
    optimizer_state: float = 1.0
    """The optimizer's bytes per byte of parameters: 0 plain SGD, 1 momentum, 2 Adam."""
    states: ParameterStates = REPLICATED
    """What the users of a parameter share out of its states."""
    recomputed: tuple[tuple[str, ...], ...] = ()
    """Groups of layers whose activations are dropped after their forward passes and computed again, as a whole, before
    their backward passes."""
    exchange: str = "messages"
    """How activations and their gradients cross, in EXCHANGES."""
    received_again: tuple[str, ...] = ()
    """Layers whose output, where other devices receive it, is dropped after the passes that read it and received again
    before their backward passes."""
    turn: str = ""
    """The layer with which a second stage begins on the devices of the one before it, where a schedule has stages go
    down the devices and up again."""
    work: tuple[float, ...] = ()
    """How many times the profile's seconds equal parts of the batch take, in their order, such as micro-batches or
    samples whose sequences differ; empty: all take as long."""
    strategy: str = ""
    """Who made it."""
    command: str = ""
    """How."""

    def __post_init__(self) -> None:
        require_name("exchange", self.exchange, EXCHANGES)
        plan_rules.require_step(self.batch_size, self.microbatches, self.optimizer_state)
        require_work(self.work, self.batch_size)
        if self.states.group and not self.states.stage:
            raise InputError("shard-group is given, but nothing is shared out: add --zero 1, 2 or 3")
        self._share_placements()

    def _share_placements(self) -> None:
        """Let equal placements be one object, so that what follows from it is worked out once."""
        first: dict[Sharding, Sharding] = {}
        distinct = {id(sharding): sharding for sharding in self.placements.values()}
        shared = {number: first.setdefault(sharding, sharding) for number, sharding in distinct.items()}
        if len(first) < len(distinct):
            placements = {name: shared[id(sharding)] for name, sharding in self.placements.items()}
            object.__setattr__(self, "placements", placements)

    @property
    def microbatch_size(self) -> int:
        """Samples of one micro-batch."""
        return self.batch_size // self.microbatches

    def state_bytes(self, profile: Profile) -> float:
        """Bytes of a checkpoint of `profile`: all parameters with their optimizer state, once."""
        return profile.parameter_bytes * (1 + self.optimizer_state)

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The devices that hold a shard, ascending."""
        return tuple(sorted({d for sharding in self.distinct_placements for d in sharding.devices}))

    @cached_property
    def distinct_placements(self) -> tuple[Sharding, ...]:
        """The placements, each once however many layers share the object."""
        return tuple({id(sharding): sharding for sharding in self.placements.values()}.values())

    @cached_property
    def layout(self) -> tuple[tuple[Sharding, ...], tuple[int, ...]]:
        """The distinct placements, and which of them each layer has: equal for equal placements, and soon hashed."""
        number = {id(sharding): position for position, sharding in enumerate(self.distinct_placements)}
        return self.distinct_placements, tuple(number[id(sharding)] for sharding in self.placements.values())

    def check(self, profile: Profile, cluster: Cluster) -> None:
        """Raise InputError unless this plan fits the profile's layers and the cluster's devices."""
        plan_rules.require_placed(profile, self)
        plan_rules.require_devices(self, cluster)
