"""What must move when one plan replaces another: pieces of parameters to devices that do not hold them.

A piece is an interval of a layer's output channels, cut wherever either plan cuts. It travels with its optimizer
state, from devices that hold it to those that need it, along a binomial tree: every device that has it sends it on.

    holders        0                       0 --> 1
    first round    0 --> 1        then     0 --> 2, 1 --> 3        and so on: 2^r copies after r rounds

Devices are numbered as in the cluster of all devices, whatever numbers a plan's own cluster gives them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.lowering.exchange.shard_regions import Interval, channel_bytes, split
from simulator.lowering.parameters.replicas import replicas_of
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan
from simulator.taskgraph import Kind, TaskGraph
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A plan on some devices of a cluster: its device i is members[i]."""

    plan: Plan
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`bytes` from one device to another, after the messages (by position) that brought them to the source."""

    source: int
    target: int
    bytes: float
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """Messages in an order in which each follows those that it waits for; lost_bytes: pieces that nobody holds."""

    messages: tuple[Message, ...]
    lost_bytes: float

    @property
    def bytes(self) -> float:
        """Bytes of all messages together."""
        return ordered_sum(message.bytes for message in self.messages)

    def seconds(self, cluster: Cluster) -> float:
        """How long the messages take on `cluster`, sharing its links."""
        return simulate(_graph(self, cluster), cluster).step_s if self.messages else 0.0


def movement(
    profile: Profile, cluster: Cluster, old: Placed, new: Placed, available: Collection[int] | None = None
) -> Movement:
    """The messages that bring every device what it needs under `new` and does not hold under `old`.

    available: the devices that can still send, by default all of the old plan's. Each piece comes from its holders
    by way of the nearest: to the device with the least transfer time first.
    """
    alive = set(old.members if available is None else available)
    lost = 0.0
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = defaultdict(float)
    scale = 1 + new.plan.optimizer_state
    for size, had, needs in _pieces(profile, old, new):
        sources, targets = tuple(sorted(had & alive)), tuple(sorted(needs - (had & alive)))
        if not sources:
            lost += size * scale
        elif targets:
            groups[sources, targets] += size * scale
    messages: list[Message] = []
    for (sources, targets), total in sorted(groups.items()):
        messages += _tree(cluster, sources, targets, total, len(messages))
    return Movement(messages=tuple(messages), lost_bytes=lost)


def renumbered(old: Placed, members: Sequence[int]) -> Plan:
    """The plan of `old` in the numbers of `members`; devices that are not among them come after."""
    gone = [device for device in old.members if device not in members]
    number = {device: i for i, device in enumerate([*members, *gone])}
    placements = {
        name: replace(sharding, devices=tuple(number[old.members[device]] for device in sharding.devices))
        for name, sharding in old.plan.placements.items()
    }
    return replace(old.plan, placements=placements)


def _pieces(profile: Profile, old: Placed, new: Placed) -> Iterable[tuple[int, set[int], set[int]]]:
    """(bytes, devices that hold it, devices that need it) of every piece that both plans leave whole."""
    had, needs = _holders(profile, old), _holders(profile, new)
    for position, layer in enumerate(profile.layers):
        edges = {edge for plan in (had, needs) for slot, _ in plan[position] for edge in slot}
        for piece in pairwise(sorted(edges)):
            size = channel_bytes(layer.parameter_bytes, layer.channels, piece)
            if size:
                yield size, _who(had[position], piece), _who(needs[position], piece)


Holders = list[tuple[Interval, set[int]]]


def _holders(profile: Profile, placed: Placed) -> Mapping[int, Holders]:
    """By layer, its channel slots and the devices that use each."""
    holders: dict[int, Holders] = {i: [] for i in range(len(profile.layers))}
    for piece in replicas_of(profile, placed.plan.placements):
        layer = profile.layers[piece.layer]
        slot = split(layer.channels, placed.plan.placements[layer.name].degrees[1])[piece.slot]
        holders[piece.layer].append((slot, {placed.members[device] for device in piece.devices}))
    return holders


def _who(slots: Holders, piece: Interval) -> set[int]:
    return next(devices for (first, last), devices in slots if first <= piece[0] and piece[1] <= last)


def _tree(
    cluster: Cluster, sources: Sequence[int], targets: Sequence[int], size_bytes: float, first: int
) -> list[Message]:
    """Messages that bring `size_bytes` from `sources` to all `targets`, numbered from `first`."""
    brought: dict[int, tuple[int, ...]] = dict.fromkeys(sources, ())
    waiting, messages = set(targets), list[Message]()
    while waiting:
        for source in tuple(brought):
            if not waiting:
                break
            nearest = min(waiting, key=lambda target: (cluster.transfer_s(source, target, size_bytes), target))
            waiting.remove(nearest)
            messages.append(Message(source=source, target=nearest, bytes=size_bytes, after=brought[source]))
            sent = first + len(messages) - 1
            brought[source], brought[nearest] = (sent,), (sent,)
    return messages


def _graph(moved: Movement, cluster: Cluster) -> TaskGraph:
    builder = GraphBuilder()
    for message in moved.messages:
        route = builder.message_routes(np.array([message.source]), np.array([message.target]))
        task = builder.add(Kind.SYNCHRONISATION, 1, device=message.target, route=route, bytes=message.bytes)
        builder.depend(task, np.array(message.after, dtype=np.int64))
    return builder.build(np.zeros(len(cluster.devices)), ())
