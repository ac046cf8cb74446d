"""What a page's plans move, all in the unit of the plan that is shown, so that the eye can compare numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10

from dashboard.state.simulating import Glance


@dataclass(frozen=True, slots=True)
class ByteUnit:
    """A binary unit: its size in bytes and its name."""

    size: float
    name: str

    def number(self, count: float) -> str:
        """`count` bytes without the unit: three significant digits, or all that stand before the point."""
        value = count / self.size
        digits = 2 - floor(log10(float(f"{value:.3g}"))) if value > 0 else 0
        return f"{value:,.{max(digits, 0)}f}"

    def words(self, count: float) -> str:
        """`count` bytes with the unit, e.g. "1,362 MiB"."""
        return f"{self.number(count)} {self.name}"


def volume_unit(shown_bytes: float) -> ByteUnit:
    """MiB, but GiB where the shown plan moves 9,999 MiB a step or more, and TiB and KiB likewise."""
    if shown_bytes >= 9999 * 2**30:
        return ByteUnit(2.0**40, "TiB")
    if 0 < shown_bytes < 2**20:
        return ByteUnit(2.0**10, "KiB")
    return ByteUnit(2.0**30, "GiB") if shown_bytes >= 9999 * 2**20 else ByteUnit(2.0**20, "MiB")


def shown_unit(glances: Iterable[Glance | None]) -> ByteUnit:
    """The unit of a page from its plans' figures, the shown plan's first."""
    first = next(iter(glances), None)
    return volume_unit(first.total_bytes if first is not None and first.ran else 0.0)
