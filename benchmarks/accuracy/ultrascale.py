"""The Ultra-Scale Playbook's runs on 8 to 128 H100 by the stack that ships, suspect runs apart, and one on 256."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.language_models import predicted, rank_and_regret
from benchmarks.published import shared_data, table
from simulator.transformers.grid_interval import grid_interval
from simulator.transformers.measured_rows import Row, card_of, grid_of, read_rows, usable
from simulator.transformers.model_card import read_card
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import TrainingStack, read_stack

BATCH_TOKENS = 256 * 4096
MOST_REPLICAS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRun:
    """A run with what is predicted of it."""

    row: Row
    step_error: float
    peak_error: float
    inside: bool


def _predicted_run(row: Row, stack: TrainingStack) -> PredictedRun:
    step_s, peak_gib, _ = predicted(row, stack)
    low_s, high_s = grid_interval(card_of(row), grid_of(row), stack)
    measured_s = float(row["step_s"])
    return PredictedRun(
        row=row, step_error=step_s / measured_s - 1, peak_error=peak_gib / float(row["mem_gb"]) - 1,
        inside=low_s <= measured_s <= high_s,
    )  # fmt: skip


def _figures(name: str, runs: Sequence[PredictedRun]) -> list[str]:
    """A row of the table: errors of steps and memory, rank and regret, and how many steps lie in their interval."""
    steps, peaks = np.array([run.step_error for run in runs]), np.array([run.peak_error for run in runs])
    rank, regret, worst = rank_and_regret([run.row for run in runs], list(steps))
    return [
        name, str(len(runs)), f"{np.median(abs(steps)):.1%}", f"{abs(steps).mean():.1%}", f"{steps.mean():+.1%}",
        f"{rank:.3f}", f"{regret:.1%} / {worst:.0%}", f"{np.mean([run.inside for run in runs]):.0%}",
        f"{abs(peaks).mean():.1%}",
    ]  # fmt: skip


def _widest_data_parallelism(stack: TrainingStack) -> tuple[float, float]:
    """(predicted, measured) seconds of the 1B on 256 replicas, from the source's chart of data parallelism."""
    chart = json.loads((shared_data() / "ultrascale" / "charts.json").read_text())["dp_scaling.html"]["traces"][0]
    rate = dict(zip(chart["x"], chart["y"], strict=True))[str(MOST_REPLICAS)]
    grid = TrainingGrid(data=MOST_REPLICAS)
    predicted_s = float(step_seconds(read_card("llama-1b-ultrascale"), grid, stack).step_s)
    return predicted_s, BATCH_TOKENS / rate / MOST_REPLICAS


def section() -> str:
    """The section of the page."""
    stack = read_stack("nanotron-h100")
    rows = read_rows(shared_data() / "ultrascale" / "visible.csv")
    clean = [_predicted_run(row, stack) for row in usable(rows)]
    suspect = [row for row in rows if row["status"] == "measured" and row["suspect"] == "1" and not row["note"]]
    lines = [_figures("all", clean)]
    lines += [_figures(model, [run for run in clean if run.row["model"] == model]) for model in ("1B", "8B")]
    lines.append(_figures("suspect runs, apart", [_predicted_run(row, stack) for row in suspect]))
    headings = ["runs", "steps", "median", "mean", "bias", "rank", "regret", "in interval", "memory"]
    predicted_s, measured_s = _widest_data_parallelism(stack)
    return f"""## Llama-like 1B and 8B on 8 to 128 H100, every grid (Ultra-Scale Playbook)

By the stack `nanotron-h100`, which was calibrated on these runs: this table shows what its mechanisms leave over.
What it is worth on sizes and numbers of nodes that a calibration has not seen stands in
[language_models.md](language_models.md): mean 8 to 9 % by size. Regret is how much longer the plan takes that was
predicted best than the best measured one, mean and worst; an interval should hold 80 %. Suspect are runs that another
run of a plan that cannot be faster beats twice over (the data's own rule); they enter nothing else.

{table(headings, lines)}

On more GPUs than the runs above have the source's charts show one step, the 1B on {MOST_REPLICAS} replicas: predicted
{predicted_s:.3f} s, measured {measured_s:.3f} s, {predicted_s / measured_s - 1:+.1%}; what a ring's hop is expected to
cost was set with it in view. Noise floor: one
plan alone was run twice, in 19.0 and 88.9 s; the second is suspect."""
