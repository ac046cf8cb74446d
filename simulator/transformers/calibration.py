"""The constants of a training stack from measured steps and peak memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace

import numpy as np

from simulator.errors import require
from simulator.transformers.bounded_fit import FittedConstants, Floats, Residuals, fit_constants
from simulator.transformers.model_card import ModelCard
from simulator.transformers.step_memory import stage_memories
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants, TrainingStack

NAMES = tuple(constant.name for constant in fields(StackConstants))
MEMORY_CONSTANTS = frozenset(NAMES[NAMES.index("saved_factor") :])
TIME_CONSTANTS = frozenset(NAMES) - MEMORY_CONSTANTS


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A grid that was run: seconds per step, and the peak that its first device reported, None where it did not."""

    card: ModelCard
    grid: TrainingGrid
    step_s: float
    peak_bytes: float | None = None


def calibrated(stack: TrainingStack, plans: Sequence[MeasuredPlan]) -> TrainingStack:
    """`stack` with the constants that have bounds fitted to `plans`, and remarks on those that could not be told.

    Errors of seconds and bytes count by their logarithm. Steps whose allocations were retried tell nothing of
    the time; they are left out by what the memory says of them. Raises InputError without plans.
    """
    require(len(plans) > 0, "plans", 0, "a calibration needs at least one measured step")
    retried = [_retried(stack, plan) for plan in plans]
    timed = [plan for plan, retry in zip(plans, retried, strict=True) if not any(retry)]
    times = _fitted(stack, TIME_CONSTANTS, lambda values: _time_residuals(stack, values, timed or plans))
    stack = replace(stack, constants=replace(stack.constants, **times.values))
    measured = [plan for plan in plans if plan.peak_bytes]
    remarks = _remarks(times)
    if measured:
        timed_stack = stack
        peaks = _fitted(stack, MEMORY_CONSTANTS, lambda values: _memory_residuals(timed_stack, values, measured))
        stack = replace(stack, constants=replace(stack.constants, **peaks.values))
        remarks += _remarks(peaks)
    return replace(stack, remarks=remarks, residual_quantiles=_quantiles(stack, timed or plans))


def _quantiles(stack: TrainingStack, plans: Sequence[MeasuredPlan]) -> dict[int, tuple[float, float]]:
    """10 and 90 % of measured over predicted seconds, by number of nodes."""
    ratios: dict[int, list[float]] = {}
    for plan in plans:
        predicted_s = float(step_seconds(plan.card, plan.grid, stack).step_s)
        ratios.setdefault(plan.grid.nodes, []).append(plan.step_s / predicted_s)
    ends = {nodes: np.quantile(group, (0.1, 0.9)) for nodes, group in sorted(ratios.items())}
    return {nodes: (float(low), float(high)) for nodes, (low, high) in ends.items()}


def _fitted(stack: TrainingStack, names: Set[str], residuals: Residuals) -> FittedConstants:
    """The constants called `names` as far as they have bounds."""
    bounds = {name: limits for name, limits in stack.bounds.items() if name in names}
    start = {name: getattr(stack.constants, name) for name in bounds}
    return fit_constants(
        residuals, start, bounds, {name: stack.expected[name] for name in bounds if name in stack.expected}
    )


def _retried(stack: TrainingStack, plan: MeasuredPlan) -> tuple[bool, ...]:
    memories = stage_memories(plan.card, plan.grid, stack)
    return tuple(float(memory.pressing) > stack.constants.border_bytes for memory in memories)


def _time_residuals(stack: TrainingStack, values: Mapping[str, Floats], plans: Sequence[MeasuredPlan]) -> Floats:
    constants = replace(stack.constants, **values)  # type: ignore[arg-type]  # arrays of candidates
    rows = [step_seconds(plan.card, plan.grid, stack, constants=constants).step_s / plan.step_s for plan in plans]
    logarithms: Floats = np.log(np.array(rows))
    return logarithms


def _memory_residuals(stack: TrainingStack, values: Mapping[str, Floats], plans: Sequence[MeasuredPlan]) -> Floats:
    constants = replace(stack.constants, **values)  # type: ignore[arg-type]  # arrays of candidates
    count = len(next(iter(values.values())))
    rows = []
    for plan in plans:
        first = stage_memories(plan.card, plan.grid, stack, constants)[0]
        rows.append(np.broadcast_to(first.peak(constants) / plan.peak_bytes, count))
    logarithms: Floats = np.log(np.array(rows))
    return logarithms


def _remarks(fitted: FittedConstants) -> tuple[str, ...]:
    bound = tuple(f"{name}: on a bound" for name in fitted.at_bound)
    return (*bound, *(f"{name}: hardly told by these steps" for name in fitted.unidentified))
