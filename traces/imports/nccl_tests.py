"""Reads the logs of nccl-tests (all_reduce_perf and its like) as measured curves of a collective.

    #       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
            1024           256     float     sum    34.66    0.03    0.06    N/A    34.47    0.03    0.06    N/A

Sizes are in bytes, times in microseconds, out-of-place first. Every line may carry a launcher's prefix, such as
"[1,0]<stdout>:" or srun's "0: ". The number of devices is that of the "Rank" lines at the top; which collective it is
says "Collective test starting: all_gather_perf", or the command line, where the log holds it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from simulator.cluster import MEASURED_COLLECTIVES
from simulator.curve import NOISE, Curve
from simulator.errors import InputError, UnknownNameError, require
from traces.imports._imported import Imported, ImportOptions, read_text, shown

OPTIONS = ("model", "ranks")
_PREFIX = re.compile(r"^(\[[\d,]+\]<std(out|err)>:|\s*\d+: ?)")
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_RANK = re.compile(r"#\s+Rank\s+\d+\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One run: a collective over so many devices, and how long it took by size (bytes -> seconds, out of place).

    collective: in MEASURED_COLLECTIVES where we know it; "" where the log does not say.
    """

    collective: str
    devices: int
    curve: Curve


def recognises(head: str, path: Path) -> bool:
    """The header of nccl-tests, with or without a launcher's prefix."""
    return re.search(r"#\s+(nThread|Using devices|Rank\s+\d+\s|size\s+count\s)", head) is not None


def read(paths: Sequence[Path], options: ImportOptions) -> Imported:
    """The curves of logs; options.model names the collective where they do not (otherwise all_reduce)."""
    sources: dict[tuple[str, int], tuple[Path, Curve]] = {}
    left_out: dict[tuple[str, int], str] = {}
    for path in paths:
        log = read_nccl_log(path, options.ranks)
        name, size = log.collective or options.model or "all_reduce", log.devices
        if name not in MEASURED_COLLECTIVES:
            raise UnknownNameError(f"{path}: {UnknownNameError.of('measured collective', name, MEASURED_COLLECTIVES)}")
        require(options.model in ("", name), "model", options.model, f"{path} is of {name}; leave it out")
        require(size > 1, f"{path}: ranks", size, "curves are of at least 2 devices")
        curve, disturbed = _undisturbed(log.curve, path)
        if (name, size) in sources:
            raise InputError(f"{path}: {name} over {size} devices is in {sources[name, size][0]} too; give one of them")
        sources[name, size] = path, _of_all(curve, size) if name == "all_to_all" else curve
        which = ", ".join(f"{each:.4g} B" for each in disturbed)
        left_out[name, size] = f"; left out {which}, which took longer than larger ones" if which else ""
    curves, lines = dict[str, dict[int, Curve]](), list[str]()
    for (name, size), (_, curve) in sorted(sources.items()):
        curves.setdefault(name, {})[size] = curve
        sizes = f"{len(curve.points)} sizes to {curve.points[-1][0]:.4g} B"
        lines.append(f"{name} over {size}: {sizes}{left_out[name, size]}")
    return Imported(profile=None, collectives=curves, remarks=tuple(lines))


def _undisturbed(curve: Curve, path: Path) -> tuple[Curve, list[float]]:
    """A curve without points that took longer than larger messages by more than times vary, and the sizes of those:
    what else a machine does only adds to a time. Raises InputError where fewer than two are left."""
    kept, disturbed, least_s = list[tuple[float, float]](), list[float](), inf
    for size, seconds in reversed(curve.points):
        if seconds * (1 - NOISE) <= least_s:
            kept.append((size, seconds))
        else:
            disturbed.append(size)
        least_s = min(least_s, seconds)
    if len(kept) < 2:
        curve.require_rising(str(path))
    return Curve(points=tuple(reversed(kept))), disturbed[::-1]


def _of_all(curve: Curve, devices: int) -> Curve:
    """An all-to-all by what all devices send together, as clusters have it; nccl-tests counts what each sends."""
    return Curve(points=tuple((size * devices, seconds) for size, seconds in curve.points))


def read_nccl_log(path: str | Path, ranks: int | None = None) -> Log:
    """The run in a log of nccl-tests. ranks: where it lacks them. Raises InputError when it holds no table or a line
    cannot be read."""
    lines = [_PREFIX.sub("", line) for line in read_text(Path(path)).splitlines()]
    counted = sum(bool(_RANK.match(line)) for line in lines)
    program = next((name for line in lines for name in _PROGRAM.findall(line)), "")
    header = next((line.lstrip("# ").split() for line in lines if re.match(r"#\s+size\s+count\s", line)), None)
    if header is None:
        raise InputError(f"{path}: no table with a header 'size count ...'; give a log of nccl-tests")
    devices = counted or ranks
    if not devices:
        raise InputError(f"{path}: it has no line '# Rank 0 ...', so over how many devices? say it with --ranks")
    require(ranks in (None, devices), "ranks", ranks, f"{path} has {devices}; leave it out")
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
            if size in points:
                raise InputError(f"{path}, line {number}: size {cells[0]} again; give each table in a file of its own")
            points[size] = seconds
    if len(points) < 2:
        raise InputError(f"{path}: it has {len(points)} sizes: a curve needs at least 2; give the log whole")
    collective = program.replace("alltoall", "all_to_all")
    return Log(collective=collective, devices=devices, curve=Curve(points=tuple(sorted(points.items()))))
