"""Constants of training stacks: recovered from steps that were made with them, held to bounds, told apart or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.transformers.accelerators import GIB
from simulator.transformers.bounded_fit import fit_constants
from simulator.transformers.calibration import MeasuredPlan, calibrated
from simulator.transformers.grid_interval import grid_interval
from simulator.transformers.measured_rows import card_of, grid_of, measured_plan, read_rows, usable
from simulator.transformers.model_card import read_card
from simulator.transformers.step_memory import stage_memories
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import read_stack, write_stack

X = np.linspace(0.0, 4.0, 30)


def test_a_line_is_recovered_although_some_points_are_far_off() -> None:
    y = 2.0 + 0.5 * X
    y[::7] *= 3
    fitted = fit_constants(
        lambda c: c["a"] + c["b"] * X[:, None] - y[:, None], {"a": 0.0, "b": 0.0}, {"a": (0, 10), "b": (-1, 2)}, {}
    )
    assert fitted.values == pytest.approx({"a": 2.0, "b": 0.5}, abs=0.02)
    assert not fitted.at_bound and not fitted.unidentified


def test_bounds_hold_and_what_nothing_tells_is_named() -> None:
    residuals = lambda c: (c["a"] + 0 * c["b"])[None, :] - np.full((5, 1), 20.0)  # noqa: E731
    fitted = fit_constants(residuals, {"a": 1.0, "b": 0.5}, {"a": (0, 10), "b": (0, 1)}, {}, scale=30.0)
    assert fitted.values["a"] == pytest.approx(10.0) and fitted.at_bound == ("a",)
    assert "b" in fitted.unidentified


def test_expectations_decide_between_constants_that_steps_cannot_tell_apart() -> None:
    residuals = lambda c: (c["a"] + c["b"])[None, :] - np.full((50, 1), 3.0)  # noqa: E731
    bounds = {"a": (0.0, 5.0), "b": (0.0, 5.0)}
    fitted = fit_constants(residuals, {"a": 0.5, "b": 0.5}, bounds, {"a": (1.0, 0.1), "b": (2.0, 0.1)})
    assert fitted.values == pytest.approx({"a": 1.0, "b": 2.0}, abs=0.01)


SHAPES = ((8, 1, 1), (4, 2, 1), (16, 8, 1), (2, 2, 2), (4, 4, 4), (2, 16, 1), (8, 2, 4))
GRIDS = [
    TrainingGrid(data=d, tensor=t, pipeline=p, zero_stage=zero, microbatch=micro, accumulation=32 // micro)
    for d, t, p in SHAPES
    for zero in (0, 1)
    for micro in (1, 2, 4)
]


def test_a_stack_is_recovered_from_steps_and_memory_made_with_it() -> None:
    stack, card = replace(read_stack("nanotron-h100"), expected={}), read_card("llama-1b-ultrascale")
    wanted = replace(
        stack.constants, launch_floor_s=3.1e-3, network_share=0.3, saved_factor=1.3,
        logit_bytes=14.0,
    )  # fmt: skip
    made = replace(stack, constants=wanted)
    plans = [
        MeasuredPlan(
            card=card, grid=grid, step_s=float(step_seconds(card, grid, made).step_s),
            peak_bytes=float(stage_memories(card, grid, made)[0].peak(wanted)),
        )
        for grid in GRIDS
    ]  # fmt: skip
    fitted = calibrated(stack, plans)
    for name in ("launch_floor_s", "network_share", "saved_factor", "logit_bytes"):
        assert getattr(fitted.constants, name) == pytest.approx(getattr(wanted, name), rel=0.1), name
    errors = [float(step_seconds(card, plan.grid, fitted).step_s) / plan.step_s - 1 for plan in plans]
    assert max(map(abs, errors)) < 0.05
    assert all(ends == pytest.approx((1.0, 1.0), abs=0.05) for ends in fitted.residual_quantiles.values())


def test_a_stack_is_read_as_it_was_written(tmp_path: Path) -> None:
    stack = read_stack("nanotron-h100")
    write_stack(stack, tmp_path / "stack.json")
    assert read_stack(tmp_path / "stack.json") == stack
    for name, (low, high) in stack.bounds.items():
        assert low <= getattr(stack.constants, name) <= high, name
    assert stack.source and "Apache-2.0" in stack.source


def test_a_calibration_needs_steps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one measured step"):
        calibrated(read_stack("nanotron-h100"), [])
    path = tmp_path / "runs.csv"
    path.write_text("model,layers\n8B,32\n")
    with pytest.raises(InputError, match="lacks the columns hidden"):
        read_rows(path)


def test_measured_runs_within_what_the_page_says(shared_data: Path) -> None:
    """A tenth of the benchmark's clean runs: docs/language_models.md has all of them."""
    rows = usable(read_rows(shared_data / "ultrascale" / "visible.csv"))[::10]
    stack = read_stack("nanotron-h100")
    plans = [measured_plan(row) for row in rows]
    steps = [abs(float(step_seconds(p.card, p.grid, stack).step_s) / p.step_s - 1) for p in plans]
    assert np.median(steps) < 0.05 and np.quantile(steps, 0.8) < 0.2
    peaks = [float(stage_memories(card_of(r), grid_of(r), stack)[0].peak(stack.constants)) / GIB for r in rows]
    assert np.median([abs(peak / float(row["mem_gb"]) - 1) for peak, row in zip(peaks, rows, strict=True)]) < 0.07
    inside = [grid_interval(p.card, p.grid, stack) for p in plans]
    covered = [low <= plan.step_s <= high for (low, high), plan in zip(inside, plans, strict=True)]
    assert np.mean(covered) > 0.7
