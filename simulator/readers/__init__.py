"""How a run was started, read back: a command line or a configuration as a card, a grid and what could not be read.

This folder is the registry: a file that does not start with "_" reads one runtime's. It exposes

    recognises(source) -> bool          whether the command or the file is this runtime's
    read(source) -> StartedRun       what it says; raises InputError in one line
"""

from __future__ import annotations

from simulator.errors import InputError
from simulator.readers._source import StartedRun, source_of
from simulator.registry import entries, load_entry

__all__ = ["StartedRun", "read_configuration"]


def read_configuration(
    launch: str | None, config: str | None, model: str | None = None, devices: int | None = None
) -> StartedRun:
    """What a command line (or the script that holds it) or a file says was trained, and how.

    model: a card, where that does not say; devices: how many, likewise. Raises InputError, OSError.
    """
    source = source_of(launch, config, model, devices)
    for name in entries("simulator.readers"):
        reader = load_entry("simulator.readers", "reader", name)
        if reader.recognises(source):
            started: StartedRun = reader.read(source)
            return started
    keys = ", ".join(sorted(source.content)[:5])
    seen = f"keys {keys}" if source.content else f"script {source.script or 'of no name'}"
    raise InputError(f"{source.name}: {seen}: no runtime's; known: {', '.join(entries('simulator.readers'))}")
