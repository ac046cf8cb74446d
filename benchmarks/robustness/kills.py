"""Work that is killed at random moments: nothing is lost, nothing is left.

Usage: python -m benchmarks.robustness.kills [COUNT]

Sweeps, convergence curves, captures, executions, validations and the dashboard's workers, by SIGKILL and SIGTERM in
turn. A kill is a failure where

    lost     a file from before it, or a result that stood, is gone or another; the same command does not come to the
             end afterwards; the dashboard does not answer again
    left     a process or a namespace after the kill, a temporary folder or a half-written file after the next run

Needs torch, and root for the network lab; `--only sweep,capture` takes some kinds. The seed decides the moments.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.pages.published import table
from benchmarks.robustness.killed_processes import Killed, Room, command_of, ownerless_namespaces, stat_of, wait_for
from simulator.sweep.results_table import read_only

SWEEP = """schema: 1
parameters: {profile: vgg_digits, cluster: cpu-1g, strategy: [data, pipeline, owt], devices: [2, 4, 8],
  inter_bandwidth_bytes_per_s: [1Gbps, 10Gbps], batch_size: [64, 128, 256, 512]}
"""
STEP = ("vgg_digits", "--cluster", "cpu-1g", "--devices", "2")
QUERY = "profile=vgg16&cluster=dgx-a100&strategy=hypergraph&devices=8&batch_size=256&seed={}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds with commas between")
    args = parser.parse_args()
    names, began_s, rows, bad = args.only.split(","), time.monotonic(), [], 0
    for i, name in enumerate(names):
        count = args.count // len(names) + (i < args.count % len(names))
        killed = kills(name, count, args.seed)
        bad += len(killed.lost) + len(killed.left)
        row = (name, killed.kills[signal.SIGKILL], killed.kills[signal.SIGTERM], len(killed.lost), len(killed.left))
        rows.append(row)
        print("  ".join(map(str, row)), flush=True)
        for failure in (*killed.lost, *killed.left):
            print(f"  {failure}", file=sys.stderr, flush=True)
    print(table(["work", "SIGKILL", "SIGTERM", "lost", "left"], rows))
    total = sum(row[1] + row[2] for row in rows)
    print(f"{total} kills in {time.monotonic() - began_s:.0f} s: {bad} failures")
    sys.exit(bool(bad))


def kills(name: str, count: int, seed: int) -> Killed:
    """So many kills of one kind of work, in a new folder."""
    killed = Killed()
    with tempfile.TemporaryDirectory() as folder:
        room = Room(folder=Path(folder), random=Random(f"{seed}/{name}"))
        room.temporary.mkdir()
        KINDS[name](room, count, killed)
        killed.left += [f"{what} after the next run" for what in (*room.leftovers(), *ownerless_namespaces())]
    return killed


def _signals(count: int) -> Iterator[int]:
    yield from (signal.SIGTERM if number % 2 else signal.SIGKILL for number in range(count))


def _sweep(room: Room, count: int, killed: Killed) -> None:
    """One sweep, killed and resumed; its table is that of a sweep nobody killed."""
    (room.folder / "sweep.yaml").write_text(SWEEP)
    words = ("sweep", "sweep.yaml", "--jobs", "2", "--output")
    whole = room.finish(*words, "whole")
    killed.lost += [whole] if whole else []
    reference = _rows(room.folder / "whole")
    number = 0
    for number, sent in enumerate(_signals(count)):
        out = f"out{number // 4}"  # four kills of one sweep, then another
        process = room.start(*words, out, *(("--resume",) if (room.folder / out / "sweep.sqlite").exists() else ()))
        wait_for(process, room.random.uniform(0.5, 4))
        before = _rows(room.folder / out)
        room.kill(process, sent, killed)
        after = _rows(room.folder / out)
        killed.lost += [f"row {row} of {out}" for row in before if after.get(row) != before[row]]
    for folder in sorted(room.folder.glob("out*")):
        complaint = room.finish(*words, folder.name, "--resume")
        killed.lost += [complaint] if complaint else []
        if _rows(folder) != reference:
            killed.lost.append(f"{folder.name} is not the table of a sweep that nobody killed")


def _rows(folder: Path) -> dict[int, tuple[object, ...]]:
    """The rows of a sweep that are done, by number, without how long they took."""
    if not (folder / "sweep.sqlite").exists():
        return {}
    with suppress(Exception), read_only(folder) as connection:  # half-made: there is no table yet
        names = [row[1] for row in connection.execute("PRAGMA table_info(points)")]
        kept = ", ".join(f'"{name}"' for name in names if not name.endswith("wall_s"))
        rows = {row[0]: row for row in connection.execute(f"SELECT {kept} FROM points WHERE status != 'pending'")}
        return rows
    return {}


def _replacing(*words: str, output: str, latest_s: float) -> Callable[[Room, int, Killed], None]:
    """Work whose only result replaces a file: that is the old one, whole, until it is the new one, whole."""

    def kill(room: Room, count: int, killed: Killed) -> None:
        target = room.folder / output
        for sent in _signals(count):
            target.write_text("old")
            process = room.start(*words, output)
            wait_for(process, room.random.uniform(0.3, latest_s))
            if room.kill(process, sent, killed) and target.read_text() != "old":
                killed.lost.append(f"{output} is not the old file")
        complaint = room.finish(*words, output)
        killed.lost += [complaint] if complaint else []

    return kill


def _execution(room: Room, count: int, killed: Killed) -> None:
    """Two processes that train in the network lab."""
    complaint = room.finish("partition", *STEP, "--strategy", "data", "--output", "plan.json")
    _replacing("execute", "plan.json", *STEP[1:], "--steps", "200", "--output", output="run.npz", latest_s=9)(
        room, count, killed
    )
    killed.lost += [complaint] if complaint else []


def _validation(room: Room, count: int, killed: Killed) -> None:
    """One validation, killed and gone on with; what a killed one stored is kept."""
    words = ("validate", "--only", "alexnet_small-ddp", "--rounds", "1", "--output", "out")
    stored: dict[Path, bytes] = {}
    for sent in _signals(count):
        process = room.start(*words)
        wait_for(process, room.random.uniform(3, 20))
        room.kill(process, sent, killed)
        stored |= _contents(room.folder / "out")
    complaint = room.finish(*words)
    killed.lost += [complaint] if complaint else []
    now = _contents(room.folder / "out")
    killed.lost += [f"{path.name} is gone or another" for path in stored if now.get(path) != stored[path]]


def _contents(folder: Path) -> dict[Path, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp"]
    return {path: path.read_bytes() for path in paths if path.name != "validation.json"}


def _dashboard(room: Room, count: int, killed: Killed) -> None:
    """A worker in the middle of a search, after which the server answers again; then the server itself."""
    for number, sent in enumerate(_signals(count)):
        with _server(room) as (server, address):
            with suppress(OSError):  # the page waits for nothing: the search goes on behind it
                urlopen(f"{address}/partition.svg?{QUERY.format(number)}", timeout=0.2).close()
            time.sleep(room.random.uniform(0.2, 2))
            workers = [process for process in room.processes() if process != server.pid and _is_worker(process)]
            if number % 3 and workers:
                os.kill(room.random.choice(workers), signal.SIGKILL)
                if (status := _status(f"{address}/export/report.json?profile=vgg_digits&strategy=data")) != 200:
                    killed.lost.append(f"after a worker was killed the server answers {status}")
            room.kill(server, sent, killed)
    with _server(room) as (server, _):
        room.kill(server, signal.SIGTERM, Killed())


@contextmanager
def _server(room: Room) -> Iterator[tuple[subprocess.Popen[str], str]]:
    server = room.start("dashboard", "--port", "0")
    assert server.stdout is not None
    words = server.stdout.readline().split()
    yield server, next(word for word in words if word.startswith("http")).rstrip("/")


def _status(address: str) -> int:
    try:
        with urlopen(address, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def _is_worker(process: int) -> bool:
    """Whether a process of the dashboard was forked from the one that has everything loaded."""
    parent = int(stat_of(process)[1]) if stat_of(process) else 0
    return "forkserver" in command_of(process) and "forkserver" in command_of(parent)


KINDS: Mapping[str, Callable[[Room, int, Killed], None]] = {
    "sweep": _sweep,
    "converge": _replacing(
        *("converge", "vgg_digits", "--batch-sizes", "64,128", "--seeds", "2", "--epochs", "1", "--output"),
        output="curves.json", latest_s=8,
    ),
    "capture": _replacing(
        *("capture", "vgg_digits", "--batch-size", "8", "--repeats", "5", "--output"), output="p.json", latest_s=8
    ),
    "execute": _execution,
    "validate": _validation,
    "dashboard": _dashboard,
}  # fmt: skip


if __name__ == "__main__":
    main()
