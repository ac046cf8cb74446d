"""Processes held to a share of a core by the kernel's control groups, so that one machine has devices of unequal speed.

Needs root and the cpu controller, of either version of control groups; `available` says what is missing.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from simulator.errors import RunError

PERIOD_US = 20_000
"""A group that has used up its share waits for the end of the period."""

_OLD, _NEW = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


def available() -> str | None:
    """None where processes can be throttled, else the plain reason why not."""
    if not sys.platform.startswith("linux"):
        return f"control groups are Linux's alone, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "control groups need root: run with sudo"
    if not _OLD.is_dir() and "cpu" not in _controllers():
        return "no cpu controller under /sys/fs/cgroup"
    return None


class Throttle:
    """A group whose processes together get `cores` of a core (above 1: of several), inside `with`."""

    def __init__(self, name: str, cores: float) -> None:
        self._old = _OLD.is_dir()
        self._folder = (_OLD if self._old else _NEW) / f"shardscope-{os.getpid()}-{name}"
        self._cores = cores

    def __enter__(self) -> Throttle:
        reason = available()
        if reason:
            raise RunError(f"cannot throttle processes: {reason}")
        quota = round(self._cores * PERIOD_US)
        self._folder.mkdir()
        if self._old:
            (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(OSError):  # a process that does not end keeps it
            self._folder.rmdir()

    def add(self, process: int) -> None:
        """Hold a process, and what it starts from then on, to the group's share."""
        (self._folder / "cgroup.procs").write_text(str(process))


def _controllers() -> list[str]:
    path = _NEW / "cgroup.controllers"
    return path.read_text().split() if path.exists() else []
