"""Reads the logs of nccl-tests (all_reduce_perf and its like) as measured curves of a collective.

    #       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
            1024           256     float     sum    34.66    0.03    0.06    N/A    34.47    0.03    0.06    N/A

Sizes are in bytes, times in microseconds, out-of-place first. Every line may carry a launcher's prefix, such as
"[1,0]<stdout>:". The number of devices is that of the "Rank" lines at the top.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.curve import Curve
from simulator.errors import InputError
from traces.imports._imported import Imported, ImportOptions, read_text, shown

_PREFIX = re.compile(r"^\[[\d,]+\]<std(out|err)>:")
_RANK = re.compile(r"#\s+Rank\s+\d+\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One run: a collective over so many devices, and how long it took by size (bytes -> seconds, out of place)."""

    devices: int
    curve: Curve


def recognises(head: str, path: Path) -> bool:
    """The header of nccl-tests, with or without a launcher's prefix."""
    return re.search(r"#\s+(nThread|Using devices|Rank\s+\d+\s|size\s+count\s)", head) is not None


def read(paths: Sequence[Path], options: ImportOptions) -> Imported:
    """The curves of the logs of one collective, which --model names where the logs do not (all_reduce otherwise)."""
    curves = collective_curves(paths)
    lines = (
        f"{options.model or 'all_reduce'} over {devices}: {len(curve.points)} sizes to {curve.points[-1][0]:.4g} B"
        for devices, curve in curves.items()
    )
    return Imported(profile=None, collectives={options.model or "all_reduce": curves}, remarks=tuple(lines))


def read_nccl_log(path: str | Path) -> Log:
    """The run in a log of nccl-tests. Raises InputError when it holds no table or a line cannot be read."""
    lines = [_PREFIX.sub("", line) for line in read_text(Path(path)).splitlines()]
    devices = sum(bool(_RANK.match(line)) for line in lines)
    header = next((line.lstrip("# ").split() for line in lines if re.match(r"#\s+size\s+count\s", line)), None)
    if header is None or not devices:
        raise InputError(f"{path}: no table with a header 'size count ...' and no ranks; give a log of nccl-tests")
    if "time" not in header:
        raise InputError(f"{path}: its table has no column 'time'; give a log of nccl-tests")
    time = header.index("time")
    points = {}
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if cells and cells[0].isdecimal():
            try:
                size, seconds = float(cells[0]), float(cells[time]) / 1e6
            except (IndexError, ValueError):
                raise InputError(
                    f"{path}, line {number}: {shown(line.strip())} has no time in column {time + 1}"
                ) from None
            if not (0 < size < 1e18 and 0 < seconds < 1e9):
                raise InputError(f"{path}, line {number}: {shown(line.strip())}: size and time are positive")
            points[size] = seconds
    if len(points) < 2:
        raise InputError(f"{path}: it has {len(points)} sizes: a curve needs at least 2; give the log whole")
    return Log(devices=devices, curve=Curve(points=tuple(sorted(points.items()))))


def collective_curves(paths: Iterable[str | Path]) -> Mapping[int, Curve]:
    """The curves of several logs by number of devices, as `Cluster.collectives` takes them under a name."""
    logs = [read_nccl_log(path) for path in paths]
    return {log.devices: log.curve for log in sorted(logs, key=lambda log: log.devices)}
