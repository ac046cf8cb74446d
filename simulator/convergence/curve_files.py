"""Files of measured convergence curves, and those that come with Shardscope, one per network."""

from __future__ import annotations

from pathlib import Path

from simulator import files
from simulator.convergence.curves import Curves

CURVES = files.Shipped("curves (and no such file; shardscope converge makes one)", "traces", "curves")


def read_curves(source: str | Path) -> Curves:
    """The curves in a JSON file, or those that come with Shardscope for a network of that name.

    Raises InputError when the file breaks a rule, UnknownNameError when there is neither file nor name, OSError when
    it cannot be read.
    """
    return files.read_json(CURVES.path(source), Curves)
