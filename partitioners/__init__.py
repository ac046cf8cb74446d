"""One file per strategy: Profile, Cluster -> Plan. This folder is the registry.

A file that does not start with "_" is a strategy. Its name, with hyphens for underscores, is the strategy's
name everywhere, and it exposes

    partition(profile, cluster, *, batch_size, synchronisation=Synchronisation(), optimizer_state=1.0,
              seed=0, ...) -> Plan

where `...` are options of its own, each with a default; most take `microbatches`. A strategy places layers on
workers only, never on parameter servers, leaves its inputs alone and returns the same plan for the same seed.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import cast

from simulator.errors import UnknownNameError
from simulator.plan import Plan

Partition = Callable[..., Plan]


def strategies() -> tuple[str, ...]:
    """The names of all strategies, sorted."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.replace("_", "-") for name in names if not name.startswith("_")))


def load(name: str) -> Partition:
    """The `partition` function of strategy `name`. Raises UnknownNameError."""
    if name not in strategies():
        raise UnknownNameError.of("strategy", name, strategies())
    return cast(Partition, importlib.import_module(f"{__name__}.{name.replace('-', '_')}").partition)


def options(name: str) -> Mapping[str, object]:
    """The keyword options of strategy `name` that have a default, with it. Raises UnknownNameError."""
    parameters = inspect.signature(load(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
