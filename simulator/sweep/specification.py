"""What a sweep file says.

    schema: 1
    parameters:                      every combination of these
      profile: vgg16
      cluster: gcp-v100
      strategy: [data, pipeline]
      devices: 2..16 by x2
      inter_bandwidth_bytes_per_s: [1Gbps, 10Gbps]
    zip:                             the parameters of a group are zipped
    - {batch_size: [128, 256], microbatches: [8, 16]}
    where: [microbatches >= devices, fits]

A parameter has the name of its column in the table. `where` holds SQLite expressions over parameters; a point for
which one is false is left out. "fits" is special: it leaves out points whose plan does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator import files
from simulator.errors import InputError

FITS = "fits"
REQUIRED = ("profile", "cluster", "strategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """A sweep as written: values are not yet read, see `axes`."""

    parameters: Mapping[str, Any]
    """Values by name, combined with each other."""
    zip: tuple[Mapping[str, Any], ...] = ()
    """Groups of parameters whose values go together."""
    where: tuple[str, ...] = field(default=())
    """SQLite expressions; a point for which one is false does not run."""
    notes: str = ""
    """For people."""

    def __post_init__(self) -> None:
        written = [*self.parameters, *(name for group in self.zip for name in group)]
        for name in REQUIRED:
            if name not in written:
                raise InputError(f"parameters lacks {name!r}: a sweep names at least {', '.join(REQUIRED)}")
        twice = sorted({name for name in written if written.count(name) > 1})
        if twice:
            raise InputError(f"parameter {twice[0]!r} stands in parameters and in zip, or in two zips; keep one")


def read_specification(path: str | Path) -> Specification:
    """The sweep in a YAML file. Raises InputError when its content breaks a rule, OSError when unreadable."""
    return files.read_yaml(Path(path), Specification)
