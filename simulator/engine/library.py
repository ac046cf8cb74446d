"""The shared library of compiled.c and its headers: shipped in a wheel, or compiled once per user where a compiler is.

Imports nothing but the standard library, because the build hook of the wheel (hatch_build.py) runs it alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

SOURCE = Path(__file__).with_name("compiled.c")
STATE = SOURCE.with_name("compiled_state.h")
FLAGS = ("-O3", "-ffp-contract=off", "-shared", "-fPIC")
_SECONDS = 60


def library() -> Path | None:
    """The library of this source on this machine: shipped, cached or compiled now; None where none can be made."""
    shipped = SOURCE.with_name(file_name())
    if shipped.is_file():
        return shipped
    try:
        cached = cache_folder() / file_name()
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cached if cached.is_file() else compile_library(cached)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        return None


def file_name() -> str:
    """A name that changes with the source, the flags and the machine."""
    sources = [path.read_bytes() for path in sorted(SOURCE.parent.glob("compiled*.[ch]"))]
    made_from = (*sources, " ".join(FLAGS).encode(), sys.platform.encode(), platform.machine().encode())
    return f"compiled-{sha256(b'|'.join(made_from)).hexdigest()[:16]}.so"


def cache_folder() -> Path:
    """Where the user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardscope"


def compile_library(path: Path) -> Path | None:
    """Compile the source to `path`, which appears only when complete; None without a compiler or where it fails."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        compiled = Path(folder) / path.name
        command = [compiler, *FLAGS, "-o", str(compiled), str(SOURCE), "-lm"]
        try:
            completed = subprocess.run(command, capture_output=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        if completed.returncode != 0:
            return None
        compiled.replace(path)
    return path
