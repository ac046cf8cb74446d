"""What has to be done in one step: compute and transfer tasks with their dependencies, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from graphlib import TopologicalSorter
from itertools import chain

import numpy as np
import numpy.typing as npt

from simulator.expert_routing import Routing
from simulator.kept import Kept

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Kind(IntEnum):
    """What a task does.

    WEIGHT makes the gradient of parameters where a schedule splits it from BACKWARD, which then makes those of
    inputs. READY is a receiver's word to a sender, of no bytes, where messages wait for their receivers. PARAMETERS
    gathers parameters that several devices share out, or sends buffers to all. RECOMPUTE is a forward pass done
    again because its activations were dropped. Stored runs name kinds by number, so new ones come last.
    """

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2
    UPDATE = 3
    ACTIVATION = 4
    GRADIENT = 5
    SYNCHRONISATION = 6
    READY = 7
    PARAMETERS = 8
    RECOMPUTE = 9


@dataclass(frozen=True, slots=True)
class Route:
    """The (source, target) device pairs that a transfer uses, all at one pace.

    A message has one pair. A ring all-reduce has one per neighbour: each pair carries the task's bytes, in
    `rounds` rounds, each of which waits once for the slowest pair's latency. copies: so many equal transfers with
    `single` pairs each, one after the other in `pairs`, that replicas do at the same time; see `lowering.symmetry`.
    ahead_bytes: of messages that leave together, what goes right ahead of this one; it arrives as the end of one
    message of both, and waits for no latency of its own. None: nothing goes ahead. collective: what its pairs do
    together, such as "all-reduce", for which a cluster may know better than `rounds` (`network.collective_times`).
    routing: of the tokens that an all-to-all takes to their experts or back.
    """

    pairs: tuple[tuple[int, int], ...]
    rounds: int = 1
    copies: int = 1
    ahead_bytes: float | None = None
    collective: str = ""
    routing: Routing | None = None

    def __hash__(self) -> int:
        return hash((len(self.pairs), self.pairs[:1], self.pairs[-1:], self.rounds))  # of thousands of pairs at once

    @property
    def single(self) -> tuple[tuple[int, int], ...]:
        """The pairs of one transfer, the first of equal ones."""
        return self.pairs if self.copies == 1 else self.pairs[: len(self.pairs) // self.copies]

    @property
    def latencies(self) -> int:
        """How many times it waits for latency."""
        return self.rounds if self.ahead_bytes is None else 0

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices touched, ascending."""
        return _devices(self)


@lru_cache(maxsize=4096)
def _devices(route: Route) -> tuple[int, ...]:
    return tuple(sorted({*chain.from_iterable(route.pairs)}))


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Columns of equal length, one entry per task; task i is entry i.

    kind: a Kind. device: where a compute task runs; for a message, its receiver; -1 for a collective.
    route: index into `routes` for a transfer, -1 for compute. seconds: a compute task's duration (device
    speed applied), or a transfer's where it was measured and does not contend. bytes: what a transfer
    carries over each of its route's pairs. layer, microbatch, shard: the owner, -1 where it has none.
    priority: a device takes its ready task of the smallest (priority, index). allocated_bytes: memory taken on
    `device` when the task starts; freed_bytes: given back when it ends. The predecessors of task i are
    dependencies[dependency_start[i] : dependency_start[i + 1]].

    allocation_task, allocation_device, allocation_bytes, of one length: memory that a task takes when it starts or,
    below 0, gives back when it ends on a device that need not be its own, such as every member of a collective.
    static_bytes: per device, what stays allocated: parameters, gradients, optimizer state.
    layer_names: names for the `layer` column.

    launch_s, host_waits, empty where nothing is launched: beside each device its host launches compute tasks, in the
    order in which the device takes them, ahead of it. Of task k that takes launch_s[k] seconds and ends at
    L[k] = max(L[k-1], B[k]) + launch_s[k], where B[k] is the instant at which the device takes it if host_waits[k],
    else 0. The task starts no earlier than L[k], and until then its device runs no other. launch_depth: as
    `Runtime.launch_depth`, for memory.
    """

    kind: npt.NDArray[np.int8]
    device: Ints
    route: Ints
    seconds: Floats
    bytes: Floats
    layer: Ints
    microbatch: Ints
    shard: Ints
    priority: Ints
    allocated_bytes: Floats
    freed_bytes: Floats
    dependency_start: Ints
    dependencies: Ints
    routes: tuple[Route, ...]
    static_bytes: Floats
    layer_names: tuple[str, ...]
    allocation_task: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    allocation_device: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    allocation_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    launch_s: Floats = field(default_factory=lambda: np.zeros(0))
    host_waits: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    launch_depth: int = 0

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def kept(self) -> Kept:
        """What others have worked out of these tasks for all timelines of the graph; what nobody changes."""
        return Kept(budget=64)

    @cached_property
    def is_transfer(self) -> npt.NDArray[np.bool_]:
        return self.route >= 0

    @cached_property
    def is_launched(self) -> bool:
        """Whether the host takes time to launch any task."""
        return bool(self.launch_s.any())

    @cached_property
    def pairs(self) -> Ints:
        """The (source, target) devices of all routes, one route after the other, shape (pairs, 2)."""
        pairs = list(chain.from_iterable(route.pairs for route in self.routes))
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def pair_counts(self) -> Ints:
        """How many pairs each route has, shape (routes,)."""
        return np.array([len(route.pairs) for route in self.routes], dtype=np.int64)

    @cached_property
    def counted_bytes(self) -> Floats:
        """`bytes`, shape (tasks,), in whole multiples of 2^-50 of what all pairs carry, or of somewhat less: their sums
        are exact in every order, of one replica's tasks and of all replicas'."""
        carried = self.bytes @ np.append(self.pair_counts, 0)[self.route]
        unit = np.ldexp(1.0, max(int(np.frexp(carried)[1]) - 51, -1074))  # no number is less
        return np.rint(self.bytes / unit) * unit if carried else self.bytes

    @cached_property
    def route_bytes(self) -> Floats:
        """Bytes of the transfers of each kind over each pair of each route, shape (kinds, routes)."""
        transfers, shape = np.flatnonzero(self.is_transfer), (len(Kind), len(self.routes))
        number = self.kind[transfers].astype(np.int64) * shape[1] + self.route[transfers]
        size_bytes = np.bincount(number, weights=self.counted_bytes[transfers], minlength=shape[0] * shape[1])
        return size_bytes.astype(np.float64).reshape(shape)

    def predecessors(self, task: int) -> Ints:
        """Tasks that must end before `task` starts."""
        return self.dependencies[self.dependency_start[task] : self.dependency_start[task + 1]]

    def waits_first(self) -> Iterator[tuple[int, list[int]]]:
        """Every task with those that it waits for, which come before it. Raises CycleError."""
        waited = {task: self.predecessors(task).tolist() for task in range(len(self))}
        return ((task, waited[task]) for task in TopologicalSorter(waited).static_order())

    def describe(self, task: int, devices: Sequence[str] = ()) -> str:
        """One task in words, e.g. "backward of conv1, micro-batch 2, shard 0 on device 1".

        devices: the names of the devices, where they are known: "... on host0/gpu1".
        """
        word = "" if devices else "device "
        kind, layer = Kind(self.kind[task]), int(self.layer[task])
        words = kind.name.lower() + (f" of {self.layer_names[layer]}" if layer >= 0 else "")
        if self.microbatch[task] >= 0:
            words += f", micro-batch {self.microbatch[task]}"
        if self.shard[task] >= 0:
            words += f", shard {self.shard[task]}"
        if self.route[task] < 0:
            return f"{words} on {word}{_name(self.device[task], devices)}"
        route = self.routes[self.route[task]]
        if len(route.pairs) == 1:
            source, target = (_name(device, devices) for device in route.pairs[0])
            return f"{words} from {word}{source} to {target}"
        among = ", ".join(_name(device, devices) for device in route.devices)
        return f"{words} among {'' if devices else 'devices '}{among}"


def _name(device: int, names: Sequence[str]) -> str:
    """A device's name, or its number where names are not known."""
    return names[device] if names else f"{device}"


def turned_round(start: Ints, dependencies: Ints) -> tuple[Ints, Ints]:
    """Dependencies by the task that is waited for, in CSR form: (start, the tasks that wait for it)."""
    tasks = len(start) - 1
    waiting = np.repeat(np.arange(tasks), np.diff(start))
    counts = np.bincount(dependencies, minlength=tasks)
    return np.append(0, np.cumsum(counts)), waiting[np.argsort(dependencies, kind="stable")]
