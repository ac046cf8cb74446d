"""Registries by folder: a file that does not start with "_" is an entry of its name, with hyphens for underscores."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.util import find_spec
from types import ModuleType

from simulator.errors import require_name


@cache
def entries(package: str) -> tuple[str, ...]:
    """The names of the entries in the folder of `package`, sorted; neither it nor they are imported."""
    spec = find_spec(package)
    path = spec.submodule_search_locations if spec else None
    names = (module.name for module in pkgutil.iter_modules(path or []) if not module.name.startswith("_"))
    return tuple(sorted(name.replace("_", "-") for name in names))


@cache
def load_entry(package: str, kind: str, name: str) -> ModuleType:
    """The module of the entry `name`, a `kind` of thing in words. Raises UnknownNameError."""
    require_name(kind, name, entries(package))
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")
