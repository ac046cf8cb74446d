"""Files of measured convergence curves, and those that come with Shardscope, one per network."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from simulator import files
from simulator.convergence.curves import Curves
from simulator.errors import require_name


def read_curves(source: str | Path) -> Curves:
    """The curves in a JSON file, or those that come with Shardscope for a network of that name.

    Raises InputError when the file breaks a rule, UnknownNameError when there is neither file nor name, OSError when
    it cannot be read.
    """
    if isinstance(source, str) and not Path(source).is_file() and not source.endswith(".json"):
        require_name("curves (and no such file; shardscope converge makes one)", source, measured())
        source = Path(str(_folder() / f"{source}.json"))
    return files.read_json(Path(source), Curves)


def measured() -> tuple[str, ...]:
    """Names of the networks whose curves come with Shardscope, sorted."""
    folder = _folder()
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def _folder() -> resources.abc.Traversable:
    return resources.files("traces") / "curves"
