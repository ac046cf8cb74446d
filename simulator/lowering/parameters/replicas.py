"""Who uses which part of a parameter: every piece with the devices that hold it and sum its gradient.

A shard uses its output channels x its part of the input channels (reduce). Each shard by sample, height and width has a
term of the gradient; copies have the same term and are summed apart, each with its own peers. A layer that is tied to
another uses the same parameters, so its shards have further terms of the same gradient: an embedding and a head share a
matrix of which the one contracts the axis that the other has as channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from simulator.lowering.exchange.reshard import Target, Term, groups_of
from simulator.lowering.exchange.shard_regions import Interval, channel_bytes, split
from simulator.plan import Sharding
from simulator.taskgraph import Ints
from simulator.workload import DTYPE_BYTES, Layer, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The devices that need the summed gradient of one parameter piece, which each of them holds, and its bytes.

    A piece is the output channels of a channel slot of the layer (by position) x the input channels of a reduce slot x
    the experts of an expert slot, of which a layer without experts has one; of tied layers it is what is cut alike in
    all of them, and the slots are those of the first. holders: the devices whose terms are summed for them, mostly the
    same. shards: those that compute these terms, a copy of each, by their
    number among the shards of all layers in a row. at_home: those of them whose terms every device that needs the sum
    has itself, in a copy, so that they are no part of what moves. cell: of tied layers, the piece's output channels and
    its input channels in the first of them. models: how many replicas of the model sum it, of which the devices are
    those of the simulated. alike: the devices, in the first replica, of all the pieces that ranks use alike and of
    which this is the first, where ranks are counted (see `symmetry`).
    """

    layer: int
    slot: int
    reduce_slot: int = 0
    at_home: tuple[int, ...] = ()
    cell: tuple[Interval, Interval] | None = None
    parameter_bytes: int
    devices: tuple[int, ...]
    holders: tuple[int, ...]
    shards: tuple[int, ...]
    models: int = 1
    alike: tuple[tuple[int, ...], ...] = ()

    @property
    def is_summed(self) -> bool:
        """Whether any gradient moves."""
        return self.models > 1 or len({*self.devices, *self.holders}) > 1

    @property
    def is_shared(self) -> bool:
        """Whether several devices need the sum."""
        return self.models > 1 or len(self.devices) > 1


def replicas_of(
    profile: Profile,
    placements: Mapping[str, Sharding],
    models: int = 1,
    first_of: Callable[[Sequence[Replicas], Sequence[int]], Replicas] | None = None,
) -> list[Replicas]:
    """Every parameter piece with the devices that use it; copies that are summed apart are pieces apart.

    models: how many replicas of the model there are, of which `placements` are those of the simulated. first_of: where
    the pieces of a layer are alike, and one shard of each layer counts, the piece that stands for them, given the
    positions of the layers that use them.
    """
    counts = [len(placements[layer.name].devices) for layer in profile.layers]
    first = np.cumsum([0, *counts]).tolist()
    tied: dict[str, list[int]] = {}
    for position, layer in enumerate(profile.layers):
        for name in layer.tied_to:
            tied.setdefault(name, []).append(position)
    pieces: list[Replicas] = []
    known: dict[object, Replicas] = {}  # of layers that are alike and cut alike
    for position, layer in enumerate(profile.layers):
        if not layer.parameter_bytes:
            continue
        users = (position, *tied.get(layer.name, ()))
        make = _tied if len(users) > 1 else _own
        if first_of is None:
            pieces += make(profile, placements, users, first, models)
        elif len(users) > 1:
            pieces.append(first_of(list(make(profile, placements, users, first, models)), users))
        else:
            key = profile.alike[position], id(placements[layer.name]), _input_channels(profile, layer)
            if key not in known:
                known[key] = first_of(list(make(profile, placements, users, first, models)), users)
            pieces.append(replace(known[key], layer=position, shards=users))
    return pieces


def _own(
    profile: Profile, placements: Mapping[str, Sharding], users: Sequence[int], first: Sequence[int], models: int
) -> tuple[Replicas, ...]:
    """The pieces of a layer that shares its parameters with no other, kept for other plans of the profile."""
    sharding = placements[profile.layers[users[0]].name]
    key = "pieces", users[0], first[users[0]], models, sharding.shape, sharding.devices
    return profile.kept.get(key, lambda: tuple(_cut(profile, users[0], sharding, first, models)), len(sharding.devices))


def _cut(profile: Profile, position: int, sharding: Sharding, first: Sequence[int], models: int) -> Iterator[Replicas]:
    layer = profile.layers[position]
    inputs = _input_channels(profile, layer)
    experts = layer.routing.experts if layer.routing else 1
    cuts = (
        enumerate(split(layer.channels, sharding.degrees[1])),
        enumerate(split(inputs, sharding.reduce)),
        enumerate(split(experts, sharding.degrees[3]) if layer.routing else [(0, 1)]),
    )
    for (slot, interval), (reduce_slot, part), (expert_slot, own) in product(*cuts):
        of_slot = channel_bytes(layer.parameter_bytes, layer.channels, interval)
        of_part = channel_bytes(of_slot, inputs, part)
        slots = slot, reduce_slot, expert_slot if layer.routing else None
        for group in _users(sharding.shape, sharding.devices, *slots):
            yield Replicas(
                layer=position,
                slot=slot,
                reduce_slot=reduce_slot,
                parameter_bytes=channel_bytes(of_part, experts, own),
                devices=group.devices,
                holders=group.holders,
                shards=tuple(first[position] + shard for shard in sorted(group.shards)),
                at_home=tuple(first[position] + shard for shard in group.at_home),
                models=models,
            )


def _tied(
    profile: Profile, placements: Mapping[str, Sharding], users: Sequence[int], first: Sequence[int], models: int
) -> Iterator[Replicas]:
    """The pieces of parameters that several layers use, the one that they are booked on first."""
    owner = profile.layers[users[0]]
    extents = owner.channels, _input_channels(profile, owner)
    cuts = [_cuts(profile, placements, users[0], user) for user in users]
    rows, columns = (sorted({edge for cut in cuts for interval in cut[axis] for edge in interval}) for axis in (0, 1))
    for row in pairwise(rows):
        of_row = channel_bytes(owner.parameter_bytes, extents[0], row)
        for column in pairwise(columns):
            slots = [tuple(_slot_of(cut[axis], cell) for axis, cell in enumerate((row, column))) for cut in cuts]
            terms, targets = [], []
            for user, (channel, reduce) in zip(users, slots, strict=True):
                sharding = placements[profile.layers[user].name]
                channel, reduce = (reduce, channel) if _transposed(owner, profile.layers[user]) else (channel, reduce)
                terms += _terms(user, sharding.shape, sharding.devices, channel, reduce, first[user])
            targets = [
                Target(device, copy, task)
                for term in terms
                for copy, (device, task) in enumerate(zip(term.devices, term.tasks, strict=True))
            ]
            for summed in _summed(terms, targets):
                yield Replicas(
                    layer=users[0],
                    slot=slots[0][0],
                    reduce_slot=slots[0][1],
                    cell=(row, column),
                    parameter_bytes=channel_bytes(of_row, extents[1], column),
                    devices=summed.devices,
                    holders=summed.holders,
                    shards=tuple(sorted(summed.shards)),
                    at_home=summed.at_home,
                    models=models,
                )


def _transposed(owner: Layer, user: Layer) -> bool:
    """Whether the input channels of one layer are the output channels of the other."""
    return owner.kind.lower().startswith("embedding") != user.kind.lower().startswith("embedding")


def _cuts(
    profile: Profile, placements: Mapping[str, Sharding], owner: int, user: int
) -> tuple[list[Interval], list[Interval]]:
    """How a layer cuts the owner's output channels, and its input channels."""
    layer, sharding = profile.layers[owner], placements[profile.layers[user].name]
    degrees = sharding.degrees[1], sharding.reduce
    if _transposed(layer, profile.layers[user]):
        degrees = degrees[::-1]
    return split(layer.channels, degrees[0]), split(_input_channels(profile, layer), degrees[1])


def _slot_of(intervals: Sequence[Interval], cell: Interval) -> int:
    return next(i for i, (first, last) in enumerate(intervals) if first <= cell[0] and cell[1] <= last)


def _input_channels(profile: Profile, layer: Layer) -> int:
    """The channels that a layer reads; where it reads training data, its parameters for each output channel."""
    if layer.inputs:
        return profile.layers[profile.index[layer.inputs[0]]].channels
    return max(layer.parameter_bytes // (DTYPE_BYTES[profile.dtype] * layer.channels), 1)


class _Users(NamedTuple):
    """The devices that need a summed gradient, those that hold its terms, and the shards that compute them.

    at_home: those of the shards whose terms all these devices have.
    """

    devices: tuple[int, ...]
    holders: tuple[int, ...]
    shards: tuple[int, ...]
    at_home: tuple[int, ...] = ()


@lru_cache(maxsize=4096)
def _users(
    shape: tuple[int, ...], devices: tuple[int, ...], slot: int, reduce_slot: int, expert_slot: int | None
) -> tuple[_Users, ...]:
    """The groups that sum the gradient of one piece of a layer of its own; expert_slot: None without experts."""
    terms = _terms(0, shape, devices, slot, reduce_slot, 0, expert_slot)
    return _summed(terms, [Target(term.devices[k], k, term.tasks[k]) for term in terms for k in range(shape[5])])


def _terms(
    layer: int,
    shape: tuple[int, ...],
    devices: tuple[int, ...],
    slot: int,
    reduce_slot: int,
    first: int,
    expert_slot: int | None = None,
) -> list[Term]:
    """One term of the gradient for each shard by sample, height and width, with all its copies.

    expert_slot: the part by width that the piece belongs to, where these are experts.
    """
    numbers: Ints = np.arange(len(devices)).reshape(shape)[:, slot, :, :, reduce_slot]  # (sample, height, width, copy)
    if expert_slot is not None:
        numbers = numbers[:, :, expert_slot]
    return [
        Term(layer, tuple(devices[shard] for shard in copies), tuple(first + shard for shard in copies))
        for copies in numbers.reshape(-1, shape[5]).tolist()  # (terms, copy)
    ]


def _summed(terms: Sequence[Term], targets: Sequence[Target]) -> tuple[_Users, ...]:
    """The groups that sum; of one device where all terms are at home."""
    users: list[_Users] = []
    for group in groups_of(terms, targets):
        summed = [shard for shards in group.holders.values() for shard in shards]
        kept = [shard for shards in group.at_home.values() for shard in shards]
        if group.holders:
            users.append(
                _Users(tuple(sorted(group.targets)), tuple(sorted(group.holders)), (*summed, *kept), tuple(kept))
            )
        else:
            users += [_Users((device,), (device,), tuple(shards)) for device, shards in group.at_home.items()]
    return tuple(users)
