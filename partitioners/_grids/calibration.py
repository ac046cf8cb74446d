"""The constants of a training stack from measured steps, by simulating them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from partitioners._grids.grid_plan import grid_plan
from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.run import step_report
from simulator.workload import Profile

Floats = npt.NDArray[np.float64]
LOSS_SCALE = 0.05
"""Residuals (logarithms of predicted over measured) beyond which an outlier counts less and less (Cauchy's loss)."""
TOLD = 0.7
"""A constant whose standard error the steps leave at more than this share of what was expected to begin with was hardly
told by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Between which values a constant is looked for, and what other sources say to expect of it, give or take."""

    low: float
    high: float
    expected: float
    width: float


CONSTANTS: Mapping[str, Fitted] = {
    "device.matmul_efficiency": Fitted(low=0.5, high=1.2, expected=0.95, width=0.1),
    "device.attention_efficiency": Fitted(low=0.4, high=1.6, expected=1.0, width=0.15),
    "device.traffic_factor": Fitted(low=0.5, high=2.5, expected=1.2, width=0.3),
    "device.loss_bytes_per_logit": Fitted(low=20, high=80, expected=45, width=15),
    "runtime.forward_launch_s": Fitted(low=1e-5, high=2e-4, expected=7e-5, width=5e-5),
    "runtime.update_launch_s": Fitted(low=0.0, high=6e-4, expected=1e-4, width=1e-4),
    "runtime.step_overhead_s": Fitted(low=0.0, high=0.05, expected=0.02, width=0.01),
    "runtime.collective_check_s": Fitted(low=0.0, high=5e-4, expected=0.0, width=2e-4),
}
"""matmul_efficiency and attention_efficiency: over what `kernels` says of a GPU, from data sheets and kernel tables.
Launches: a torch module of some kernels takes 20 to 150 us of host time;
a backward pass is taken to launch twice as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A grid that was run: seconds per step, and the peak that its first device reported, None where it did not.

    runtime: fields of the runtime that this run had otherwise than the stack.
    """

    card: ModelCard
    grid: TrainingGrid
    step_s: float
    peak_bytes: float | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)


def calibrated(
    stack: TrainingStack, plans: Sequence[MeasuredPlan], cluster_of: Callable[[int], Cluster]
) -> TrainingStack:
    """`stack` with CONSTANTS fitted to `plans`, and remarks on those that could not be told.

    cluster_of: the cluster of so many devices. Errors count by their logarithm, an expectation like one row that is off
    by twice LOSS_SCALE at its width. Raises InputError without plans.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped]  # takes a while to load

    require(len(plans) > 0, "plans", 0, "a calibration needs at least one measured step")
    cluster_of = lru_cache(maxsize=64)(cluster_of)
    plans, refusals = _placed(stack, plans, cluster_of)
    require(len(plans) > 0, "plans", 0, f"no plan has a measured step: {refusals[-1] if refusals else ''}")
    names = list(CONSTANTS)
    low, high, expected, width = (
        np.array([getattr(CONSTANTS[name], field) for name in names]) for field in ("low", "high", "expected", "width")
    )
    measured = np.array([plan.step_s for plan in plans])

    def residuals(shares: Floats) -> Floats:
        values = low + (high - low) * shares
        tried = with_constants(stack, dict(zip(names, values.tolist(), strict=True)))
        steps = predicted_steps_s(tried, plans, cluster_of)
        return np.concatenate([np.log(steps / measured), 2 * LOSS_SCALE * (values - expected) / width])

    current = np.array([constant_of(stack, name) for name in names])
    start = np.clip((current - low) / (high - low), 1e-3, 1 - 1e-3)
    solution = least_squares(
        residuals, start, bounds=(0.0, 1.0), loss="cauchy", f_scale=LOSS_SCALE, diff_step=1e-2, xtol=1e-3, ftol=1e-3
    )
    values = dict(zip(names, (low + (high - low) * solution.x).tolist(), strict=True))
    errors = np.sqrt(np.diag(np.linalg.inv(solution.jac.T @ solution.jac / LOSS_SCALE**2)))
    return replace(with_constants(stack, values), remarks=remarks_on(solution.x, errors))


def remarks_on(shares: Floats, errors: Floats) -> tuple[str, ...]:
    """Which of CONSTANTS stand on a bound that is not expected, and which their steps hardly told.

    shares, errors: where they stand between their bounds, from 0 to 1, and their standard errors.
    """
    on_bound, untold = [], []
    for (name, known), share, error in zip(CONSTANTS.items(), shares.tolist(), errors.tolist(), strict=True):
        wide = known.high - known.low
        expected, before = (known.expected - known.low) / wide, known.width / wide / 2
        if abs(share - 0.5) > 0.499 and abs(share - expected) > before:
            on_bound.append(f"{name}: on a bound")
        if error > TOLD * before:
            untold.append(f"{name}: hardly told by these steps")
    return *on_bound, *untold


def _placed(
    stack: TrainingStack, plans: Sequence[MeasuredPlan], cluster_of: Callable[[int], Cluster]
) -> tuple[list[MeasuredPlan], list[str]]:
    """The runs that are plans, and why each of the others is none."""
    kept, refusals = [], []
    for plan in plans:
        profile = modelled_profile(plan.card, stack, batch_size=4)
        try:
            grid_plan(plan.grid, profile, cluster_of(plan.grid.devices), stack)
        except InputError as error:
            refusals.append(str(error))
        else:
            kept.append(plan)
    return kept, refusals


def constant_of(stack: TrainingStack, name: str) -> float:
    """One of CONSTANTS."""
    part, _, field = name.partition(".")
    return float(getattr(getattr(stack, part), field))


def with_constants(stack: TrainingStack, values: Mapping[str, float]) -> TrainingStack:
    """`stack` with some of CONSTANTS changed; a backward pass launches twice what a forward pass does."""
    parts: dict[str, dict[str, Any]] = {"device": {}, "runtime": {}}
    for name, value in values.items():
        part, _, field = name.partition(".")
        parts[part][field] = value
    if "forward_launch_s" in parts["runtime"]:
        parts["runtime"]["backward_launch_s"] = 2 * parts["runtime"]["forward_launch_s"]
    changed = {part: replace(getattr(stack, part), **fields) for part, fields in parts.items()}
    return replace(stack, **changed)


def predicted_steps_s(
    stack: TrainingStack, plans: Sequence[MeasuredPlan], cluster_of: Callable[[int], Cluster]
) -> Floats:
    """The simulated step of each plan, shape (plans,)."""
    profiles: dict[ModelCard, Profile] = {}
    steps = []
    for plan in plans:
        if plan.card not in profiles:
            profiles[plan.card] = modelled_profile(plan.card, stack, batch_size=4)
        profile, cluster = profiles[plan.card], cluster_of(plan.grid.devices)
        made = grid_plan(plan.grid, profile, cluster, stack)
        steps.append(step_report(profile, cluster, made, runtime=replace(stack.runtime, **plan.runtime)).step_s)
    return np.array(steps)
