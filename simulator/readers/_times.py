"""Step times alone: a file of "412ms 405 ms 0.44s"."""

from __future__ import annotations

import re
from pathlib import Path

from simulator.errors import InputError
from simulator.readers._log import RunLog
from simulator.units import parse_time

_SPACED_UNIT = re.compile(r"(?<=[0-9.])[ \t]+(?=(ns|us|µs|ms|s)\b)")


def times_alone(path: Path) -> RunLog | None:
    """The times in a file that holds nothing else; None where it holds something else."""
    with path.open("rb") as file:
        text = file.read(1 << 20).decode("utf-8", "replace")
    words = [word for word in re.split(r"[\s,;]+", _SPACED_UNIT.sub("", text)) if word]
    try:
        times_s = tuple(parse_time(word) for word in words)
    except InputError:
        return None
    return RunLog(kind="step_s", speeds=times_s) if times_s and min(times_s) > 0 else None
