"""Which collective the moves of a tensor are together, if any."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from simulator.distinct import distinct
from simulator.lowering.exchange.moves import Moves
from simulator.taskgraph import Ints

Pattern = Literal["message", "all-gather", "reduce-scatter", "all-reduce", "all-to-all"]


def pattern_of(moves: Moves) -> Pattern:
    """The collective that these moves, joined by devices in common, are together."""
    members = moves.members
    if len(members) == 1:
        return "message"
    held = _share(moves, np.concatenate([moves.holders, moves.at_home]), members)  # whether or not it moves
    needed = _share(moves, moves.targets, members)
    if held == "all" and needed == "all":
        return "all-reduce" if _share(moves, moves.holders, members) == "all" else "message"
    if held == "all" and needed == "each":
        return "reduce-scatter"
    if held == "each" and needed == "all":
        return "all-gather"
    if held == "each" and needed == "each" and _every_pair_alike(moves, members):
        return "all-to-all"
    return "message"


def _share(moves: Moves, rows: Ints, members: Ints) -> Literal["all", "each", "other"]:
    """Whether the devices of each group in rows (group, device, task) are all members, or each member alone has an
    equal part."""
    group, device = np.divmod(distinct(rows[:, 0] * (members[-1] + 1) + rows[:, 1]), members[-1] + 1)
    counts = np.unique(group, return_counts=True)[1]
    if (counts == len(members)).all():
        return "all"
    if (counts != 1).any():
        return "other"
    shares = np.bincount(np.searchsorted(members, device), weights=moves.elements[group], minlength=len(members))
    return "each" if _alike(shares) else "other"


def _every_pair_alike(moves: Moves, members: Ints) -> bool:
    """Whether every device sends as much to every other; moves: groups of one holder and one target."""
    ends = np.zeros((2, len(moves.elements)), dtype=np.int64)
    for end, rows in zip(ends, (moves.holders, moves.targets), strict=True):
        end[rows[:, 0]] = rows[:, 1]
    numbers = moves.numbers
    source, target = ends[:, numbers]
    pairs, which = np.unique(source * (members[-1] + 1) + target, return_inverse=True)
    elements = np.bincount(which.ravel(), weights=moves.elements[numbers])
    return len(pairs) == len(members) * (len(members) - 1) and _alike(elements)


def _alike(elements: npt.NDArray[Any]) -> bool:
    """Whether they differ by no more than rounding to whole elements does."""
    return bool(elements.max() - elements.min() <= 1 + 1e-6 * elements.sum())
