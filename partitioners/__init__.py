"""One file per strategy: Profile, Cluster, StepSettings -> Partition. This folder is the registry.

A file that does not start with "_" is a strategy. Its name, with hyphens for underscores, is the strategy's
name everywhere, and it exposes

    partition(profile, cluster, step, *, ...) -> Partition
    choices(profile, cluster, step) -> Choices    optional: what there is to try of it, which every search reads

where `...` are options of its own, each with a default; one that draws takes a `seed`. A strategy places layers on
workers only, never on parameter servers, leaves its inputs alone and returns the same for the same seed. It is taken to
read the step's micro-batches; where it reads another choice of the step, or none, it lists them with what it does when
the step leaves them open:

    STEP_OPTIONS = {"microbatches": None, "schedule": "1f1b"}

`make_plan` puts the plan together: what the step asks for holds, whether the strategy reads it or not.

Strategies share what stands behind them, in files and rooms that start with "_":

_grid_choices    which grids there are to try, and how a strategy has each
_choice_search   what there is to try, in the order of lower bounds, simulated until the best are certain
_plan_search     the best plan of all that there is to try, and how far it is from a lower bound
_strongest       the strongest plans of every strategy: what a search starts from, and what its answer is compared with
_scenario_plans  plans for the devices that a scenario leaves: the strategy's, or one close to the plan before

_search/         search among plans by what they promise and then by simulating them
_stages/         contiguous stages: what they cost, and which cut is the shortest
_layerwise/      what the strategy `layerwise` weighs, and how it finds the least sum
_hypergraphs/    networks and plans as hypergraphs, and the programs that cut them
_judge/          plans are compared by their simulated steps
_network/        how long traffic takes on the links of a cluster when nothing else runs
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from shlex import quote
from typing import Any

from simulator.cluster import Cluster
from simulator.errors import InputError, require_from_0, require_name
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import stack_of
from simulator.plan import Partition, Plan, StepSettings
from simulator.registry import entries, load_entry
from simulator.workload import Profile

BASELINES = ("greedy", "shuffle")
"""Strategies that show what others gain, no plans to train by: left out where nobody names them."""
MOST_SEED = 1e9
"""The programs that cut count on from it in 32 bits."""
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


def check_options(name: str, wanted: Mapping[str, object]) -> None:
    """Raise UnknownNameError for one of `wanted` that is no option of strategy `name`, InputError for a wrong type."""
    known, hints = options(name), _hints(name)
    for option, value in wanted.items():
        require_name(f"option of strategy {name}", option, known)
        if option in hints and not _is_of(value, hints[option]):
            kinds = [kind.__name__ for kind in _kinds(hints[option]) if kind is not type(None)]
            raise InputError(f"{option} is {value!r}: strategy {name} takes {' or '.join(kinds)} there")


@cache
def _hints(name: str) -> Mapping[str, Any]:
    return typing.get_type_hints(load(name))


def _kinds(hint: Any) -> tuple[type, ...]:
    """The plain types that an annotation allows; none where it says more than that."""
    arms = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return tuple(typing.get_origin(arm) or arm for arm in arms)


def _is_of(value: object, hint: Any) -> bool:
    kinds = _kinds(hint)
    if not all(kind in (int, float, bool, str, tuple, type(None)) for kind in kinds):
        return True  # a function, or text of a few values: the strategy says more of those
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, list):  # as YAML and JSON write a tuple
        return tuple in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyChoice:
    """One way to try a strategy on a step."""

    strategy: str
    step: StepSettings
    """As asked for, with what this choice sets of it."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Options of the strategy."""
    grid: TrainingGrid | None = None
    """The degrees that it stands for, where it is a grid."""

    def plan(self, profile: Profile, cluster: Cluster) -> Plan:
        """Raises as `make_plan` does."""
        return make_plan(self.strategy, profile, cluster, self.step, **self.own)

    @property
    def words(self) -> str:
        """What `shardscope simulate` is told of it, beside the profile, the machine and the rest of a step."""
        step, states = self.step, self.step.states
        own = (f"--set {quote(f'{name}={_text(value)}')}" for name, value in self.own.items())
        words = [f"--strategy {self.strategy}", *own, f"--zero {states.stage}" if states.stage else ""]
        words += [f"--shard-group {states.group}" if states.group else ""]
        words += [f"--microbatches {step.microbatches}" if step.microbatches else ""]
        words += [f"--schedule {step.schedule}" if step.schedule else "", f"--batch-size {step.batch_size}"]
        return " ".join(filter(None, words))


def _text(value: object) -> str:
    """As `--set` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def choices(name: str, profile: Profile, cluster: Cluster, step: StepSettings) -> Iterator[StrategyChoice]:
    """What there is to try of strategy `name`: what its file says, else its defaults with one micro-batch and with
    several.

    What the step says (micro-batches, schedule, shared states) holds. `plan` of each makes its plan; a strategy with an
    option "effort" searches by itself while that is made. `_choice_search` finds the best of them.
    """
    own = getattr(load_entry(__name__, "strategy", name), "choices", None)
    if own is not None:
        yield from own(profile, cluster, step)
        return
    counts: list[int | None] = [step.microbatches]
    if step.microbatches is None and "microbatches" in options(name):
        counts.append(max(m for m in range(1, 2 * cluster.workers + 1) if step.batch_size % m == 0))
    for count in dict.fromkeys(counts):
        yield StrategyChoice(strategy=name, step=replace(step, microbatches=count))


def make_plan(name: str, profile: Profile, cluster: Cluster, step: StepSettings, /, **own: Any) -> Plan:
    """The plan of strategy `name` for a step; own: options of the strategy.

    What the step of a modelled profile leaves open is as its stack has it. Raises UnknownNameError for a strategy or an
    option that there is not, InputError where there is no such plan.
    """
    stack = stack_of(profile)
    if stack:
        zero_stage = step.states.stage or getattr(load_entry(__name__, "strategy", name), "ZERO_STAGE", 0)
        step = stack.step(step, profile, zero_stage)
    return plan_of(name, profile, cluster, step, **own)


def plan_of(name: str, profile: Profile, cluster: Cluster, step: StepSettings, /, *, seed: int = 0, **own: Any) -> Plan:
    """The same of a step that leaves nothing open; seed: for a strategy that takes one."""
    own |= applicable(name, seed=seed)
    check_options(name, own)
    require_from_0("seed", own.get("seed", 0), MOST_SEED)
    return step.plan(profile, load(name)(profile, cluster, step, **own), name)


@cache
def _own_options(name: str) -> Mapping[str, object]:
    parameters = inspect.signature(load(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
