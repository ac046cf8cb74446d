"""A line on the terminal that says how far a measurement is and how long it will take."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TextIO

from simulator.units import format_duration

QUIET_S = 2.0
"""What takes less needs no line."""
LINE_EVERY_S = 30.0
"""How often a file or a pipe gets a line; a terminal's is written over."""


@contextmanager
def following(stream: TextIO | None, subject: str, ends_s: float = inf) -> Iterator[Callable[[int, int], None] | None]:
    """What to call with (rounds done, rounds in all) after each; None without a stream. ends_s: by time.monotonic, when
    rounds end at the latest."""
    if stream is None:
        yield None
        return
    began, written_at = time.monotonic(), -LINE_EVERY_S

    def follow(done: int, rounds: int) -> None:
        nonlocal written_at
        now = time.monotonic()
        left_s = min((now - began) / done * (rounds - done), max(ends_s - now, 0.0))
        terminal = stream.isatty()
        if now - began + left_s < QUIET_S or (not terminal and now - written_at < LINE_EVERY_S):
            return
        written_at = now
        text = f"measuring {subject}: round {done} of {rounds}, about {format_duration(left_s)} left"
        stream.write(f"\r{text[: _width()]:{_width()}}" if terminal else f"{text}\n")
        stream.flush()

    try:
        yield follow
    finally:
        if stream.isatty() and written_at > 0:
            stream.write("\r" + " " * _width() + "\r")


def _width() -> int:
    return shutil.get_terminal_size().columns - 1
