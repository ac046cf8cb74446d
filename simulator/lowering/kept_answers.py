"""Answers about the layers of a profile that are kept with it for its other plans."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from simulator.workload import Profile

_MOST_SHARDS, _MOST_KEPT = 512, 50_000
"""Of what is kept: shards that it is about, and how many answers."""
Answer = TypeVar("Answer")


def kept(profile: Profile, key: Hashable, make: Callable[[], Answer], size: int) -> Answer:
    """What `make` gives for `key`, kept where it is about few shards; size: how many."""
    known: Answer | None = profile.derived.get(key)
    if known is None:
        known = make()
        if size <= _MOST_SHARDS:
            if len(profile.derived) >= _MOST_KEPT:
                profile.derived.clear()
            profile.derived[key] = known
    return known
