"""The formats that can be imported: every file of this folder that does not begin with "_" is one.

It exposes `recognises(head, path) -> bool`, which decides by the first characters of a file, unpacked, and
`read(paths, options) -> Imported`; OPTIONS are those of `shardscope import` that it reads.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from simulator.errors import InputError, needing
from simulator.files import kind_of_file
from simulator.registry import entries
from traces.imports import kineto
from traces.imports._imported import Imported, ImportOptions

HEAD_BYTES = 8192


def formats() -> tuple[str, ...]:
    """Names of the formats, sorted."""
    return tuple(name.replace("-", "_") for name in entries("traces.imports"))


def import_files(paths: Sequence[str | Path], options: ImportOptions) -> Imported:
    """Read files of one format. Raises InputError when no format knows them, OSError when one is unreadable,
    MissingExtraError when it needs torch, which only traces that come without their network do.
    """
    files = [Path(path) for path in paths]
    modules = {recognised(path) for path in files}
    if len(modules) != 1:
        raise InputError(f"the files are of {len(modules)} formats: import those of one measurement at a time")
    with needing("torch", f"{files[0]}: a trace"):
        imported: Imported = modules.pop().read(files, options)
    return imported


def recognised(path: Path) -> ModuleType:
    """The module of the format of a file. Raises InputError when none knows it."""
    beginning = head(path)
    for name in formats():
        module = importlib.import_module(f"traces.imports.{name}")
        if module.recognises(beginning, path):
            return module
    ours = kind_of_file(path)
    what = f"this is a {ours}, which needs no import" if ours else "it is of no known format"
    raise InputError(f"{path}: {what}; known: {', '.join(formats())}")


def is_trace(path: Path) -> bool:
    """Whether a file is a trace of torch.profiler."""
    return kineto.recognises(head(path), path)


def is_measurement(path: Path) -> bool:
    """Whether a format knows a file."""
    with suppress(InputError):
        return bool(recognised(path))
    return False


def head(path: Path) -> str:
    """The first characters of a file, unpacked when it is gzip'ed; of a damaged one as many as can be had."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        except zlib.error:
            raise InputError(f"{path}: the gzip file is damaged; copy it again") from None
    return head.decode("utf-8", errors="replace")
