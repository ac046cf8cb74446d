"""The text of a file that may be packed, cut off, or no text."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from simulator.errors import InputError

MOST_BYTES = 600_000_000


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
