"""One sweep at a time in a folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from simulator.errors import InputError


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
