"""A network folded for reading: consecutive blocks of layers that repeat become one row with a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.workload import Profile

_LONGEST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`repeats` runs of `length` layers of the same kinds and joins, from layer `first` on; seconds, bytes of all."""

    first: int
    length: int
    repeats: int
    kinds: tuple[str, ...]
    seconds: float
    parameter_bytes: int

    @property
    def last(self) -> int:
        """Index of the last layer."""
        return self.first + self.length * self.repeats - 1

    @property
    def title(self) -> str:
        """e.g. "3 × conv2d, batchnorm, relu"."""
        kinds = ", ".join(self.kinds[:6]) + (f", … ({len(self.kinds)} layers)" if len(self.kinds) > 6 else "")
        return f"{self.repeats} × {kinds}" if self.repeats > 1 else kinds


def folded(profile: Profile) -> list[Block]:
    """The layers in topological order as blocks; of all foldings at a layer, the one that covers most by repeats."""
    marks = _marks(profile)
    blocks, at = [], 0
    while at < len(marks):
        length, repeats = max(
            ((n, _repeats(marks, at, n)) for n in range(1, _LONGEST + 1)),
            key=lambda folding: (folding[0] * (folding[1] - 1), -folding[0]),
        )
        length, repeats = (length, repeats) if repeats > 1 else (1, 1)
        layers = profile.layers[at : at + length * repeats]
        blocks.append(Block(
            first=at, length=length, repeats=repeats, kinds=tuple(layer.kind for layer in layers[:length]),
            seconds=sum(layer.forward_s + layer.backward_s for layer in layers),
            parameter_bytes=sum(layer.parameter_bytes for layer in layers),
        ))  # fmt: skip
        at += length * repeats
    return blocks


def _marks(profile: Profile) -> list[tuple[object, ...]]:
    """What makes two layers alike: their kind and how far back their inputs stand."""
    return [
        (layer.kind, tuple(i - profile.index[name] for name in layer.inputs)) for i, layer in enumerate(profile.layers)
    ]


def _repeats(marks: Sequence[object], at: int, length: int) -> int:
    block, count = marks[at : at + length], 1
    while len(block) == length and marks[at + count * length : at + (count + 1) * length] == block:
        count += 1
    return count
