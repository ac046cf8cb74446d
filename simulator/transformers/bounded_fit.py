"""Least squares inside bounds, with outliers held down: Levenberg-Marquardt on reweighted residuals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Residuals = Callable[[Mapping[str, Floats]], Floats]
"""Of constants by name, each an array of K candidates, the residuals as an array of shape (rows, K)."""
STEP = 1e-4
"""Of a finite difference, as a share of the distance between the bounds."""
WIDE = 0.25
"""A standard error of more than this share of the bounds' distance says that a constant was not identified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstants:
    """values by name; at_bound: those that ended on a bound; unidentified: those that the residuals hardly narrow."""

    values: Mapping[str, float]
    at_bound: tuple[str, ...]
    unidentified: tuple[str, ...]
    cost: float


def fit_constants(
    residuals: Residuals,
    start: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]],
    expected: Mapping[str, tuple[float, float]],
    *,
    scale: float = 0.05,
    rounds: int = 40,
) -> FittedConstants:
    """The constants in `bounds` that make the robust sum of `residuals` least.

    A residual r counts as scale^2 log(1 + (r / scale)^2) (Cauchy's loss), so that rows that no constant explains do
    not pull. expected (value, width) enters as one residual more, of twice `scale` at a distance of one
    width: rows are not independent, so that few of them should not outweigh it.
    """
    names = sorted(bounds)
    low = np.array([bounds[name][0] for name in names])
    span = np.array([bounds[name][1] for name in names]) - low
    centre = np.array([expected.get(name, (0.0, np.inf))[0] for name in names])
    width = np.array([expected.get(name, (0.0, np.inf))[1] for name in names])

    def evaluated(shares: Floats) -> Floats:
        """Residuals of candidates: shares of shape (constants, K) -> (rows + constants, K)."""
        values = low[:, None] + span[:, None] * shares
        rows = residuals({name: values[i] for i, name in enumerate(names)})
        return np.concatenate([rows, 2 * scale * (values - centre[:, None]) / width[:, None]])

    shares = np.clip((np.array([start[name] for name in names]) - low) / span, 0.0, 1.0)
    damping, hessian = 1e-3, np.eye(len(names))
    current, slopes = _linearised(evaluated, shares)
    for _ in range(rounds):
        weights = 1 / (1 + (current / scale) ** 2)
        gradient = slopes.T @ (weights * current)
        hessian = slopes.T @ (weights[:, None] * slopes)
        free = ~(((shares <= 0) & (gradient > 0)) | ((shares >= 1) & (gradient < 0)))
        cost = _cost(current, scale)
        for _ in range(8):
            step = np.zeros_like(shares)
            damped = hessian[np.ix_(free, free)] + damping * (
                np.diag(np.diag(hessian)[free]) + 1e-9 * np.eye(free.sum())
            )
            step[free] = -np.linalg.solve(damped, gradient[free])
            trial = np.clip(shares + step, 0.0, 1.0)
            improved = cost - _cost(evaluated(trial[:, None])[:, 0], scale)
            if improved > 0:
                break
            damping *= 10
        else:
            break
        shares, damping = trial, max(damping / 5, 1e-9)
        current, slopes = _linearised(evaluated, shares)
        if improved < 1e-6 * cost:
            break
    errors = np.sqrt(np.diag(np.linalg.inv(hessian / scale**2 + 1e-9 * np.eye(len(names)))))
    return FittedConstants(
        values={name: float(low[i] + span[i] * shares[i]) for i, name in enumerate(names)},
        at_bound=tuple(name for i, name in enumerate(names) if not 1e-6 < shares[i] < 1 - 1e-6),
        unidentified=tuple(name for i, name in enumerate(names) if errors[i] > WIDE),
        cost=_cost(current, scale),
    )


def _linearised(evaluated: Callable[[Floats], Floats], shares: Floats) -> tuple[Floats, Floats]:
    """Residuals at `shares`, and their slopes of shape (rows, constants)."""
    steps = np.where(shares > 0.5, -STEP, STEP)
    candidates = np.concatenate([shares[:, None], shares[:, None] + np.diag(steps)], axis=1)
    rows = evaluated(candidates)
    return rows[:, 0], (rows[:, 1:] - rows[:, :1]) / steps


def _cost(residuals: Floats, scale: float) -> float:
    return float(scale**2 * np.log1p((residuals / scale) ** 2).sum())
