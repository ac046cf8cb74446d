"""Groups of layers that a search cuts together, and the ways to cut them on some devices."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

from simulator.plan import Sharding
from simulator.workload import Layer, Profile

LayerGroup = tuple[str, ...]
"""Names of layers, the first of which the others follow."""


def layer_groups(profile: Profile) -> list[LayerGroup]:
    """Every layer with those that alone read it, channel by channel: a convolution with its activation and pooling."""
    groups: dict[str, list[str]] = {}
    for layer in profile.layers:
        follows = len(layer.inputs) == 1 and not layer.geometry.mixes_channels
        follows = follows and len(profile.consumers[profile.index[layer.inputs[0]]]) == 1
        groups[layer.name] = groups[layer.inputs[0]] if follows else []
        groups[layer.name].append(layer.name)
    return list(dict.fromkeys(tuple(names) for names in groups.values()))


@dataclass(frozen=True, slots=True)
class GroupCut:
    """A shard for each device: so many parts by sample, each cut further by channel or into terms of sums.

    as_terms: the first layer of a group is cut into terms, where it is a sum that somebody reads. to_samples: the sums
    go to parts by sample of the layers that follow.
    """

    devices: tuple[int, ...]
    parts: int
    as_terms: bool = False
    to_samples: bool = False

    def placements(self, profile: Profile, group: LayerGroup, samples: int) -> dict[str, Sharding] | None:
        """Where the layers of a group are; None where one cannot be cut so.

        samples: of a micro-batch.
        """
        rest, made = len(self.devices) // self.parts, dict[str, Sharding]()
        if self.parts > samples:
            return None
        following = by_channel = _sharding(self.devices, self.parts, rest)
        head, *followers = (profile.layers[profile.index[name]] for name in group)
        if self.as_terms and _most_terms(profile, head) >= rest:
            made[head.name] = _sharding(self.devices, self.parts, 1, rest)
            if self.to_samples and followers and len(self.devices) <= samples:
                following = _sharding(self.devices, len(self.devices), 1)
        else:
            followers.append(head)
            following = by_channel
        if any(layer.channels < following.degrees[1] for layer in followers):
            return None
        return made | dict.fromkeys((layer.name for layer in followers), following)


def cuts(devices: tuple[int, ...]) -> Iterator[GroupCut]:
    """Every cut into a shard for each device, the most parts by sample first."""
    for parts in (count for count in range(len(devices), 0, -1) if len(devices) % count == 0):
        yield GroupCut(devices, parts)
        if parts < len(devices):
            yield GroupCut(devices, parts, as_terms=True)
            yield GroupCut(devices, parts, as_terms=True, to_samples=True)


def device_blocks(sets: Collection[tuple[int, ...]], workers: int) -> list[tuple[int, ...]]:
    """Sets of devices that a search tries beside those in use: all, and of each in use its halves, its other half and
    the two together; the largest first."""
    blocks = {tuple(range(workers)), *sets}
    for devices in sets:
        first, size = devices[0], len(devices)
        if devices != tuple(range(first, first + size)):
            continue
        half = size // 2
        around = [(first, first + half), (first + half, first + size)]
        if first % size == 0:
            begin = first // (2 * size) * 2 * size
            around += [(begin, begin + 2 * size), (begin, begin + size), (begin + size, begin + 2 * size)]
        blocks.update(tuple(range(a, b)) for a, b in around if a < b <= workers)
    return sorted(blocks, key=lambda each: (-len(each), each))


@lru_cache(maxsize=1024)
def _sharding(devices: tuple[int, ...], samples: int, channels: int, terms: int = 1) -> Sharding:
    return Sharding(degrees=(samples, channels, 1, 1), reduce=terms, devices=devices)


def _most_terms(profile: Profile, layer: Layer) -> int:
    """Into how many terms a layer's output may be cut: one where it is no sum, or nobody reads it to add them up."""
    if not layer.sums_inputs or not layer.inputs or not profile.consumers[profile.index[layer.name]]:
        return 1
    return min(profile.layers[profile.index[name]].channels for name in layer.inputs)
