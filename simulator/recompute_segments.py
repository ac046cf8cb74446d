"""Which layers are recomputed together, where a step asks for recomputation and its strategy says no more."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from simulator.errors import InputError
from simulator.workload import Profile

Segments = tuple[tuple[str, ...], ...]
STAGES = "stages"
"""Every stage is a segment, as in GPipe (Huang et al., NeurIPS 2019, section 2.3)."""


def recompute_segments(profile: Profile, device_sets: Mapping[str, tuple[int, ...]], wanted: str) -> Segments:
    """The segments that `wanted` names: none (""), the stages, or so many of about equal saved bytes.

    device_sets: by layer, the devices that hold it; layers on others are in other segments. Raises InputError.
    """
    if not wanted:
        return ()
    count = 1 if wanted == STAGES else _count(wanted)
    total = sum(layer.saved_bytes for layer in profile.layers) or 1
    keys, saved = [], 0
    for layer in profile.layers:
        keys.append((device_sets[layer.name], count * saved // total))
        saved += layer.saved_bytes
    names = iter(layer.name for layer in profile.layers)
    return tuple(tuple(next(names) for _ in run) for _, run in groupby(keys))


def stopped_early(profile: Profile, segments: Segments) -> Segments:
    """The segments without their last layers as far as these keep nothing, such as a block's last product and the sum
    behind it: no backward pass reads what they make."""
    stopped = []
    for segment in segments:
        kept = [at for at, name in enumerate(segment) if profile.layers[profile.index[name]].saved_bytes]
        stopped.append(segment[: max(kept, default=-1) + 1])
    return tuple(segment for segment in stopped if segment)


def _count(wanted: str) -> int:
    if not wanted.isdecimal() or not int(wanted):
        raise InputError(f"recompute is {wanted!r}: it is 'stages' or a number of segments, at least 1")
    return int(wanted)
