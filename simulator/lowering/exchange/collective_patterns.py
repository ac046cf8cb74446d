"""Which collective the moves of a tensor are together, if any."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

from simulator.lowering.exchange.reshard import SumGroup

Pattern = Literal["message", "all-gather", "reduce-scatter", "all-reduce", "all-to-all"]


def pattern_of(moves: Sequence[tuple[float, SumGroup]]) -> Pattern:
    """The collective that these (elements, group), joined by devices in common, are together."""
    members = {device for _, group in moves for device in group.holders.keys() | group.targets.keys()}
    if len(members) == 1:
        return "message"
    held = _share([(elements, _holding(group)) for elements, group in moves], members)
    needed = _share([(elements, group.targets.keys()) for elements, group in moves], members)
    if held == "all" and needed == "all":
        return "all-reduce" if all(len(group.holders) == len(members) for _, group in moves) else "message"
    if held == "all" and needed == "each":
        return "reduce-scatter"
    if held == "each" and needed == "all":
        return "all-gather"
    if held == "each" and needed == "each" and _every_pair_alike(moves, members):
        return "all-to-all"
    return "message"


def _holding(group: SumGroup) -> Set[int]:
    """The devices with a term of the piece, whether or not it moves."""
    return group.holders.keys() | {device for device, tasks in group.at_home.items() if tasks}


def _share(moves: Sequence[tuple[float, Set[int]]], members: set[int]) -> Literal["all", "each", "other"]:
    """Whether the devices of each of these (elements, devices) are all members, or each alone has an equal part."""
    if all(devices == members for _, devices in moves):
        return "all"
    if any(len(devices) != 1 for _, devices in moves):
        return "other"
    shares = dict.fromkeys(members, 0.0)
    for elements, devices in moves:
        shares[next(iter(devices))] += elements
    unequal = max(shares.values()) - min(shares.values())
    return "each" if unequal <= 1 + 1e-6 * sum(shares.values()) else "other"


def _every_pair_alike(moves: Sequence[tuple[float, SumGroup]], members: set[int]) -> bool:
    pairs: dict[tuple[int, int], float] = {}
    for elements, group in moves:
        pair = next(iter(group.holders)), next(iter(group.targets))
        pairs[pair] = pairs.get(pair, 0) + elements
    alike = max(pairs.values()) - min(pairs.values()) <= 1 + 1e-6 * sum(pairs.values())
    return len(pairs) == len(members) * (len(members) - 1) and alike
