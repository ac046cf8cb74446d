"""The shared library of compiled.c and its headers: shipped in a wheel, or compiled once per user where a compiler is.

A library that was compiled here has its digest beside it, written once a child process could load it. What is damaged,
or that others can write to, is never loaded: it is compiled anew or refused. A compiler that fails or hangs is
remembered for a day.

Imports nothing but the standard library, because the build hook of the wheel (hatch_build.py) runs it alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

SOURCE = Path(__file__).with_name("compiled.c")
STATE = SOURCE.with_name("compiled_state.h")
FLAGS = ("-O3", "-ffp-contract=off", "-shared", "-fPIC")
FUNCTIONS = ("begin", "advance", "longest_chain", "binding_chain", "covered", "peaks", "previous", "stage_values")
"""What a library has to have."""
_SECONDS = 60
_REMEMBERED_S = 86_400
_LOADING = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); [getattr(library, name) for name in sys.argv[2:]]"


class NoLibraryError(Exception):
    """There is no library and none can be made; the message says why in a few words."""


def library() -> Path:
    """The library of this source on this machine: shipped, cached or compiled now. Raises NoLibraryError."""
    shipped = SOURCE.with_name(file_name())
    if shipped.is_file():
        return shipped
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cached = caches / "shardscope" / file_name()
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(cached.parent)
        return cached if _is_whole(cached) else _made(cached)
    except (OSError, RuntimeError) as error:  # no home, or one that cannot be written to
        raise NoLibraryError(f"it cannot be kept ({error})") from None


def file_name() -> str:
    """A name that changes with the source, the flags and the machine."""
    sources = [path.read_bytes() for path in sorted(SOURCE.parent.glob("compiled*.[ch]"))]
    made_from = (*sources, " ".join(FLAGS).encode(), sys.platform.encode(), platform.machine().encode())
    return f"compiled-{sha256(b'|'.join(made_from)).hexdigest()[:16]}.so"


def compile_library(path: Path) -> Path:
    """Compile the source to `path`, which appears only when a process could load it. Raises NoLibraryError."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        compiled = Path(folder) / path.name
        _run("the compiler", [_compiler(), *FLAGS, "-o", str(compiled), str(SOURCE), "-lm"])
        _run("loading what it made", [sys.executable, "-I", "-c", _LOADING, str(compiled), *FUNCTIONS])
        compiled.chmod(0o700)
        digest = Path(folder) / "digest"
        digest.write_text(_digest(compiled))
        digest.replace(_beside(path, "sha256"))
        compiled.replace(path)
    return path


def _made(path: Path) -> Path:
    """The library compiled to `path`, unless that failed within a day by the same compiler. Raises NoLibraryError."""
    compiler, failure = _compiler(), _beside(path, "failed")
    tried_with = f"{compiler} {Path(compiler).stat().st_mtime_ns}"
    if failure.is_file() and time.time() - failure.stat().st_mtime < _REMEMBERED_S:
        before, _, reason = failure.read_text(errors="replace").partition("\n")
        if before == tried_with:
            raise NoLibraryError(f"{reason}; tried again after a day, or without {failure}")
    try:
        return compile_library(path)
    except NoLibraryError as error:
        failure.write_text(f"{tried_with}\n{error}")
        raise


def _compiler() -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoLibraryError("there is no C compiler (cc)")
    return compiler


def _run(what: str, command: list[str]) -> None:
    """Run a command. Raises NoLibraryError where it fails, does not start or takes longer than _SECONDS."""
    try:
        completed = subprocess.run(command, capture_output=True, timeout=_SECONDS, errors="replace")
    except subprocess.TimeoutExpired:
        raise NoLibraryError(f"{what} took longer than {_SECONDS} s") from None
    except OSError as error:
        raise NoLibraryError(f"{what} does not start ({error})") from None
    if completed.returncode != 0:
        lines = completed.stderr.strip().splitlines()
        raise NoLibraryError(f"{what} ended with {completed.returncode}" + (f" ({lines[-1][:120]})" if lines else ""))


def _check_private(path: Path) -> None:
    """Raise NoLibraryError where another user could have written `path`."""
    if not hasattr(os, "getuid"):
        return
    state = path.stat()
    if state.st_uid not in (os.getuid(), 0):
        raise NoLibraryError(f"{path} belongs to another user (number {state.st_uid}); remove it")
    if state.st_mode & 0o022:
        raise NoLibraryError(f"others may write to {path}; run chmod go-w on it")


def _is_whole(path: Path) -> bool:
    """Whether a library is there as it was when a process could load it. Raises NoLibraryError."""
    digest = _beside(path, "sha256")
    if not (path.is_file() and digest.is_file()):
        return False
    _check_private(path)
    _check_private(digest)
    return digest.read_bytes() == _digest(path).encode()


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")
