"""One file per strategy: Profile, Cluster, StepSettings -> Partition. This folder is the registry.

A file that does not start with "_" is a strategy. Its name, with hyphens for underscores, is the strategy's
name everywhere, and it exposes

    partition(profile, cluster, step, *, seed=0, ...) -> Partition

where `...` are options of its own, each with a default. A strategy places layers on workers only, never on parameter
servers, leaves its inputs alone and returns the same for the same seed. It is taken to read the step's micro-batches;
where it reads another choice of the step, or none, it lists them with what it does when the step leaves them open:

    STEP_OPTIONS = {"microbatches": None, "schedule": "1f1b"}

`make_plan` puts the plan together: what the step asks for holds, whether the strategy reads it or not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from simulator.cluster import Cluster
from simulator.errors import UnknownNameError
from simulator.plan import Partition, Plan, StepSettings
from simulator.registry import entries, load_entry
from simulator.workload import Profile

_STEP_OPTIONS: Mapping[str, object] = {"microbatches": 1}


def strategies() -> tuple[str, ...]:
    """The names of all strategies, sorted."""
    return entries(__name__)


def load(name: str) -> Callable[..., Partition]:
    """The `partition` function of strategy `name`. Raises UnknownNameError."""
    function: Callable[..., Partition] = load_entry(__name__, "strategy", name).partition
    return function


def options(name: str) -> Mapping[str, object]:
    """What may be asked of strategy `name` beside the batch and its synchronisation, with the default.

    Its own options, and of the step what makes a difference to it. Raises UnknownNameError.
    """
    of_step: Mapping[str, object] = getattr(load_entry(__name__, "strategy", name), "STEP_OPTIONS", _STEP_OPTIONS)
    return {"optimizer_state": 1.0, **of_step, **_own_options(name)}


def applicable(name: str, **wanted: Any) -> dict[str, Any]:
    """Those of `wanted` that strategy `name` has as options and that are not None. Raises UnknownNameError."""
    known = options(name)
    return {option: value for option, value in wanted.items() if option in known and value is not None}


def check_options(name: str, wanted: Iterable[str]) -> None:
    """Raise UnknownNameError for one of `wanted` that is no option of strategy `name`."""
    known = options(name)
    for option in wanted:
        if option not in known:
            raise UnknownNameError.of(f"option of strategy {name}", option, known)


def make_plan(name: str, profile: Profile, cluster: Cluster, step: StepSettings, /, **own: Any) -> Plan:
    """The plan of strategy `name` for a step; own: options of the strategy.

    Raises UnknownNameError for a strategy or an option that there is not, InputError where there is no such plan.
    """
    check_options(name, own)
    return step.plan(profile, load(name)(profile, cluster, step, **own), name)


def _own_options(name: str) -> Mapping[str, object]:
    parameters = inspect.signature(load(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
