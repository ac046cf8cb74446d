"""From sizes to the heights of bars: the bars of a column far above all others are cut off, and seen to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.figures import svg
from simulator.taskgraph import Floats

_FAR = 3.0
"""Times the next highest column: a higher one would flatten all others."""
_ABOVE = 1.5
"""Times the next highest column: what a bar that is cut off stands for at its top."""
_SAID = 0.06
"""Share of the highest bar from which a bar has its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarScale:
    """One scale of several rows of bars."""

    most: float
    """What the highest bar stands for; larger sizes are cut off."""

    @classmethod
    def of(cls, rows: Sequence[Floats]) -> BarScale:
        """Of rows of sizes by column, (columns,) each."""
        highest = np.sort(np.max(rows, axis=0))[::-1] if rows else np.zeros(1)
        first, second = float(highest[0]), float(highest[1]) if len(highest) > 1 else 0.0
        return cls(most=_ABOVE * second if 0 < _FAR * second < first else first)

    def part(self, size: float, whole: float, room: float) -> float:
        """The height of a part of a bar that stands for `whole`, of at most `room`."""
        return room * size / max(self.most, whole) if size else 0.0

    def is_said(self, size: float) -> bool:
        """Whether a bar has its number."""
        return size > 0 and size >= _SAID * self.most

    def break_marks(self, size: float, left: float, wide: float, floor: float, room: float) -> list[str]:
        """Two slanted lines around a gap across a bar that is cut off; none across any other."""
        if size <= self.most * (1 + 1e-9):
            return []
        x0, x1, y = left - 2, left + wide + 2, floor - room * 0.78
        gap = f"M{svg.number(x0)} {svg.number(y)}L{svg.number(x1)} {svg.number(y - 5)}"
        return [svg.path(gap, class_="break", fill="none"), svg.path(gap, class_="break-gap", fill="none")]
