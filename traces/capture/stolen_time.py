"""The share of core time that the host of a virtual machine took for others ("steal"), as the kernel counts it.

What is timed by the clock on the wall takes so much longer. The processor time of a thread leaves it out where the
kernel accounts for it (`CONFIG_PARAVIRT_TIME_ACCOUNTING`). A neighbour on the same core's other hardware thread slows
a core down without taking any of its time, and no kernel counts that.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_IDLE, _WAITING, _STOLEN, _GUEST = 3, 4, 7, 8
"""Columns of the first line of /proc/stat; what is from _GUEST on is counted in other columns, too."""


class StolenTime:
    """Core time from now on. stat: the kernel's counters."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._read()

    def share(self) -> float | None:
        """Of the core time that this machine's programs asked for since, what its host took; None if it is unknown."""
        after = self._read()
        if self._before is None or after is None:
            return None
        wanted, stolen = (end - begin for begin, end in zip(self._before, after, strict=True))
        return stolen / wanted if wanted > 0 else 0.0

    def _read(self) -> tuple[int, int] | None:
        """Ticks of all cores: wanted by programs, whether they got them or not, and stolen."""
        if not self._stat.exists():
            return None
        ticks = [int(count) for count in self._stat.read_text().partition("\n")[0].split()[1:]]
        if len(ticks) <= _STOLEN:
            return None
        return sum(ticks[:_GUEST]) - ticks[_IDLE] - ticks[_WAITING], ticks[_STOLEN]


def largest(shares: Iterable[float | None]) -> float | None:
    """The largest of the shares that are known; None where none is."""
    return max((share for share in shares if share is not None), default=None)


def stolen_words(share: float | None) -> str:
    """A share in words, for the notes of what was measured meanwhile; empty where it is not known."""
    return "" if share is None else f"the machine's host took {share:.1%} of its core time meanwhile"
