"""Temporary files and folders that carry their owner's name, so that what a killed process left can be removed.

An owner is MACHINE-PROCESS-START: letters for this machine and its own numbering of processes (folders are shared
between machines and containers), the process's number, and when it started, which tells it from a later process of
the same number. Where the system does not say when processes started nothing is removed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

_FOLDER = re.compile(r"shardscope-(\w+-\d+-\d+)-")
_UNFINISHED = re.compile(r"\..+\.shardscope-(\w+-\d+-\d+)\.tmp")


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder that goes with its `with` block; those of processes that have ended are removed first."""
    return tempfile.TemporaryDirectory(prefix=folder_prefix())


def folder_prefix() -> str:
    """What the names of this process's temporary folders begin with; those of ended processes are removed."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            match = _FOLDER.match(entry.name)
            if match and has_ended(match[1]):
                shutil.rmtree(entry.path, ignore_errors=True)
    return f"shardscope-{owner()}-"


def unfinished(target: Path) -> Path:
    """Beside `target`, where this process writes what is to be renamed to it."""
    return target.with_name(f".{target.name}.shardscope-{owner()}.tmp")


def remove_unfinished(folder: str | Path) -> None:
    """Remove the files that processes which have ended did not come to rename, as far as they can be."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = _UNFINISHED.fullmatch(entry.name)
            if match and has_ended(match[1]):
                os.unlink(entry.path)


def owner() -> str:
    """This process."""
    return f"{_machine()}-{os.getpid()}-{started(os.getpid()) or 0}"


def has_ended(name: str) -> bool:
    """Whether an owner was a process of this machine and is none any more."""
    machine, process, start = name.split("-")
    return machine == _machine() and Path("/proc/self/stat").exists() and started(int(process)) != start


def started(process: int) -> str:
    """When a process started, in the kernel's ticks; "" where there is none, or no Linux."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


@functools.cache
def _machine() -> str:
    """Eight letters for this machine, or container, and its numbering of processes."""
    try:
        numbering = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        numbering = 0
    return sha256(f"{platform.node()} {numbering}".encode()).hexdigest()[:8]
