"""What an importer is told beside the files, what it gives back, and text of files that may be packed or cut off."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from simulator.curve import Curve
from simulator.errors import InputError, require
from simulator.workload import Profile

MOST_BYTES = 600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Everything that a file may leave unsaid. batch_sizes: one for all files, or one for each.

    model: a name in the zoo or package.module:callable, whose input_shape, classes and vocabulary are as in
    `traces.zoo.networks.load`; for formats that hold the network's structure, the profile's name. force: accept layers
    that do not add up to the step. ranks: of a log that does not list them.
    """

    model: str = ""
    batch_sizes: tuple[int, ...] = ()
    input_shape: tuple[int, ...] | None = None
    classes: int | None = None
    vocabulary: int | None = None
    dtype: str | None = None
    device: str = ""
    force: bool = False
    ranks: int | None = None
    command: str = ""

    def batch_size(self, file: int, files: int) -> int | None:
        """The batch size of one of several files; None where the options do not say it."""
        rule = f"it is one number for all files or one for each of the {files}"
        require(len(self.batch_sizes) in (0, 1, files), "batch_size", self.batch_sizes, rule)
        return self.batch_sizes[file if len(self.batch_sizes) > 1 else 0] if self.batch_sizes else None

    def stated_batch_size(self, path: Path, file: int = 0, files: int = 1) -> int:
        """The same of a file at `path` that records none. Raises InputError where the options do not say it."""
        if size := self.batch_size(file, files):
            return size
        command = f"shardscope import {quote(str(path))} --batch-size SAMPLES --output {quote(f'{path.stem}.json')}"
        raise InputError(f"batch_size is missing: {path} does not record it; a profile to open comes from `{command}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A profile, or None from files of communication alone; curves by collective and devices; lines to print."""

    profile: Profile | None
    collectives: Mapping[str, Mapping[int, Curve]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file, unpacked when it is gzip'ed. Raises InputError when it is cut off, too long or no text."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as file:
                raw = file.read(most_bytes + 1)
        except EOFError:
            raise InputError(f"{path}: the gzip file ends too early; copy it again, whole") from None
        except (OSError, zlib.error) as error:
            raise InputError(f"{path}: the gzip file is damaged ({error}); copy it again") from None
    if len(raw) > most_bytes:
        raise InputError(f"{path}: it holds more than {most_bytes / 1e6:.0f} MB; record fewer steps, without stacks")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text") from None


def shown(value: object) -> str:
    """Something out of a file for a message: its first 60 letters."""
    return repr(str(value)[:60])


def writable(text: str) -> str:
    """A text out of JSON with "?" for the halves of surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
