"""The table of a sweep: one SQLite file, a row per point, written as points finish.

`points` holds what was asked and what came out: for the same sweep it is the same whatever the number of workers and
however often the sweep was interrupted. `timing` holds the wall-clock seconds of each point, which are not.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from simulator import file_gate
from simulator.errors import InputError
from simulator.sweep.axes import Value
from simulator.sweep.evaluate import COLUMNS, PENDING, STAGES, STATUSES, TEXTS, PointResult
from simulator.sweep.inputs import content_hash, machine_of, profile_on
from simulator.sweep.points import Points, quoted

FILE = "sweep.sqlite"
OF_ROW = ("profile_hash", "cluster_hash", "version", "status", "error")


class ResultsTable:
    """The table in `folder`, open for writing until it is closed, under `locked(folder)`."""

    def __init__(self, folder: Path, points: Points, version: str, *, resume: bool) -> None:
        """Open the table, or make it with every point pending.

        Raises InputError when there is one and `resume` is false, or when it is of another sweep.
        """
        self._folder = folder
        with _readable(folder):
            self._connection = sqlite3.connect(folder / FILE, isolation_level=None)
        try:
            with _readable(folder):
                # With a write-ahead log readers never wait; losing the last moments to a power cut costs only a resume.
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._open(points, version, resume)
        except InputError:
            self._connection.close()
            raise

    def close(self) -> None:
        """What is not recorded by now is pending."""
        self._connection.close()

    def pending(self) -> frozenset[int]:
        """Numbers of the points that have not been run. Raises InputError when the table is damaged."""
        with _readable(self._folder):
            rows = self._connection.execute("SELECT number FROM points WHERE status = ?", (PENDING,))
            return frozenset(number for (number,) in rows)

    def record(self, results: Iterable[PointResult]) -> None:
        """Write `results`, all or none. Raises InputError when the disk is full."""
        columns = ", ".join(f"{quoted(name)} = ?" for name in ("status", "error", *COLUMNS))
        slots = ", ".join("?" * (1 + len(STAGES)))
        try:
            self._connection.execute("BEGIN")
            for result in results:
                values = [result.metrics.get(name) for name in COLUMNS]
                row = (result.status, result.error, *values, result.number)
                self._connection.execute(f"UPDATE points SET {columns} WHERE number = ?", row)
                seconds = (result.number, *(result.seconds.get(stage, 0.0) for stage in STAGES))
                self._connection.execute(f"INSERT OR REPLACE INTO timing VALUES ({slots})", seconds)
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            left = "what was written before is kept, and --resume runs the rest"
            raise InputError(f"output {self._folder}: {error}; {left}") from None

    def _open(self, points: Points, version: str, resume: bool) -> None:
        identity = identity_of(points, version)
        if self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sweep'").fetchone() is None:
            self._create(points, version, identity)
            return
        left, count = len(self.pending()), self._connection.execute("SELECT count(*) FROM points").fetchone()[0]
        if left == count:  # one that never began is in nobody's way
            self._create(points, version, identity)
            return
        if not resume:
            raise InputError(
                f"output {self._folder} holds a sweep ({count - left:,} of {count:,} points run): "
                "add --resume to run the rest, or name another folder"
            )
        stored = self._identity()
        for what in identity:
            if (before := stored.get(what)) != identity[what]:
                raise InputError(
                    f"output {self._folder} holds a sweep of another {what} ({before}, now {identity[what]}): "
                    "resume with what it was started with, or name another folder"
                )
        _check_columns(self._connection, points.names)
        if count != len(points.points):
            raise InputError(_damaged(self._folder, f"it has {count:,} of {len(points.points):,} points"))

    def _identity(self) -> Mapping[str, Any]:
        """What the sweep in the table was of; empty where that is not there."""
        row = self._connection.execute("SELECT identity FROM sweep").fetchone()
        try:
            stored = file_gate.json_content(row[0]) if row and isinstance(row[0], str) else None
        except InputError as error:
            raise InputError(_damaged(self._folder, str(error))) from None
        return stored if isinstance(stored, dict) else {}

    def _create(self, points: Points, version: str, identity: Mapping[str, str]) -> None:
        """Make the tables with every point pending, all at once: a crash in between leaves nothing."""
        columns = ["number INTEGER PRIMARY KEY", *(quoted(name) for name in (*points.names, *OF_ROW, *COLUMNS))]
        slots = ", ".join("?" * (1 + len(points.names) + len(OF_ROW)))
        names = ", ".join(quoted(name) for name in ("number", *points.names, *OF_ROW))
        connection = self._connection
        connection.execute("BEGIN")
        for table in ("sweep", "points", "timing"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("CREATE TABLE sweep (identity TEXT)")
        connection.execute("INSERT INTO sweep VALUES (?)", (json.dumps(identity),))
        connection.execute(f"CREATE TABLE points ({', '.join(columns)})")
        stages = ", ".join(f"{stage}_wall_s REAL" for stage in STAGES)
        connection.execute(f"CREATE TABLE timing (number INTEGER PRIMARY KEY, {stages})")
        connection.executemany(f"INSERT INTO points ({names}) VALUES ({slots})", _rows(points, version))
        connection.execute("COMMIT")


def identity_of(points: Points, version: str) -> dict[str, str]:
    """What must be the same for a sweep to be resumed."""
    inputs = points.inputs
    return {
        "version": version,
        "list of points": content_hash([points.names, [list(p.values.values()) for p in points.points]]),
        "profile": content_hash(sorted(inputs.profile_hashes.items())),
        "cluster": content_hash(sorted(inputs.machine_hashes.items(), key=str)),
    }


@contextmanager
def read_only(folder: Path) -> Iterator[sqlite3.Connection]:
    """The table in `folder`, for queries; a sweep may be running.

    Raises InputError when there is none, or when it cannot be read, also in the body of the `with` statement.
    """
    if not (folder / FILE).is_file():
        raise InputError(f"{folder} holds no sweep: {FILE} is not there; give the folder that --output named")
    with _readable(folder):
        address = f"file:{(folder / FILE).resolve().as_posix()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            _check_columns(connection, ("strategy",))
            yield connection


def checked(folder: Path, rows: Iterable[sqlite3.Row]) -> list[Mapping[str, Any]]:
    """Rows of points that ran, as they are. Raises InputError for a value that no point has."""
    plain: list[Mapping[str, Any]] = [dict(row) for row in rows]
    for row in plain:
        for name, value in row.items():
            number = isinstance(value, int | float) and 0 <= value < math.inf
            sound = isinstance(value, str) if name in TEXTS else number
            if isinstance(value, bytes) or (name in COLUMNS and value is not None and not sound):
                raise InputError(_damaged(folder, f"{name} of point {row['number']} is {str(value)[:40]!r}"))
    return plain


def status_counts(folder: Path) -> dict[str, int]:
    """How many points have each status."""
    with read_only(folder) as table:
        rows = table.execute("SELECT status, count(*) FROM points GROUP BY status ORDER BY 2 DESC, 1").fetchall()
    unknown = [status for status, _ in rows if status not in STATUSES]
    if unknown:
        raise InputError(_damaged(folder, f"a point has the status {str(unknown[0])[:40]!r}"))
    return dict(rows)


def stage_seconds(folder: Path) -> dict[str, float]:
    """Wall-clock seconds of all points by stage, summed over workers."""
    sums = ", ".join(f"total({stage}_wall_s)" for stage in STAGES)
    with read_only(folder) as table:
        seconds = table.execute(f"SELECT {sums} FROM timing").fetchone()
    return dict(zip(STAGES, seconds, strict=True))


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Make of what SQLite says about a damaged table an InputError."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise InputError(_damaged(folder, str(error))) from None


def _damaged(folder: Path, why: str) -> str:
    return f"{folder / FILE} cannot be used: {why}; is it damaged? name another folder, or sweep anew"


def _check_columns(table: sqlite3.Connection, names: Iterable[str]) -> None:
    """Raise sqlite3.DatabaseError unless the points have all these columns and those of results."""
    has = {row[1] for row in table.execute("PRAGMA table_info(points)")}
    lacking = [name for name in ("number", *names, *OF_ROW, *COLUMNS) if name not in has]
    if lacking:
        raise sqlite3.DatabaseError(f"its points lack {', '.join(lacking[:3])}")


def _rows(points: Points, version: str) -> Iterable[Sequence[Value]]:
    inputs = points.inputs
    for point in points.points:
        hashes = inputs.profile_hashes[profile_on(point.values)], inputs.machine_hashes[machine_of(point.values)]
        yield point.number, *point.values.values(), *hashes, version, PENDING, ""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; it is free again when the process ends, however it ends.

    The lock is an open write transaction on a small SQLite file: the operating system drops it with the process.
    Raises InputError when another process holds it or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(folder / "lock.sqlite", timeout=0, isolation_level=None)
    except (OSError, sqlite3.DatabaseError) as error:
        raise InputError(f"output {folder} cannot be written ({error}); name another folder") from None
    with closing(connection):
        try:
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("PRAGMA user_version = 1")
        except sqlite3.DatabaseError as error:
            problem = "another sweep is running in it" if "locked" in str(error) else f"it cannot be written ({error})"
            raise InputError(f"output {folder}: {problem}; wait for it or name another folder") from None
        yield
