"""Reads what torch.profiler records, with the structure of the model: layers measured inside real training steps.

Recognising such a file needs no torch, reading it does: the model is built on torch's meta device.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traces.imports._imported import Imported, ImportOptions

OPTIONS = ("model", "batch_size", "input_shape", "classes", "vocabulary", "dtype", "device", "force")


def recognises(head: str, path: Path) -> bool:
    """A trace of events, with the keys that torch.profiler writes before them or an event at once."""
    start = head.lstrip()[:1]
    return (
        start == "{" and any(key in head for key in ('"traceEvents"', '"schemaVersion"', '"deviceProperties"'))
    ) or (start == "[" and '"ph"' in head)


def read(paths: Sequence[Path], options: ImportOptions) -> Imported:
    """The profile of one or several recordings. Raises InputError where they cannot be trusted, naming why."""
    from traces.imports._kineto import read_recordings

    return read_recordings(paths, options)
