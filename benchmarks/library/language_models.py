"""Predict steps and memory of published language-model runs, and calibrate on them.

    python -m benchmarks.library.language_models --rows CSV --predictions OUT.csv [--stacks FOLDER | --stack NAME|FILE]
    python -m benchmarks.library.language_models --rows CSV --calibrate --stacks FOLDER
    python -m benchmarks.library.language_models --cross-validate model|nodes --stacks FOLDER
    python -m benchmarks.library.language_models --answer MODEL NODES
    python -m benchmarks.library.language_models --constants

The CSV is of the form of the Ultra-Scale Playbook's benchmark (see `partitioners._grids.measured_rows`); the runs are
of the preset `p5`. Predictions have the columns id, pred_step_s, pred_mem_gb, pred_oom: 1 where
memory does not suffice or no plan has the run. Rows marked suspect, or whose batch is not what they say, tell nothing.
Each is predicted by the stack of the version that made it: those that ship, or those of a calibration in a folder; or
all by one stack.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.accuracy._grids import PublishedRun, all_predicted, predicted
from benchmarks.accuracy._steps import Figures
from benchmarks.pages.published import shared_data, table
from partitioners._grids.calibration import CONSTANTS, calibrated, constant_of
from partitioners._grids.measured_rows import Row, card_of, grid_of, measured_plan, read_rows, usable
from simulator.files import write_json
from simulator.language_models.accelerators import GIB
from simulator.language_models.card_files import cards, read_card
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack, read_stack
from simulator.network.catalogue import read_preset

PRESET = "p5"
STACK, CHECKED_STACK, OLDER_STACK = VERSIONS = "nanotron-h100", "nanotron-checked-h100", "nanotron-2024-h100"
UNCHECKED = {"collective_check_s": 0.0}
"""Fields of the runtime of runs without torch's checks."""
CALIBRATED_ON = 48
"""Runs that a calibration simulates again and again; more tell little more."""
PREDICTED = 60
"""Runs that each calibration is tried on."""
SHOWN = 5
"""Plans of an answer."""


def usable_rows(path: Path | None = None) -> list[Row]:
    """The clean rows of the benchmark in SHARDSCOPE_DATA, or of a CSV of its form."""
    return list(usable(read_rows(path or shared_data() / "ultrascale" / "visible.csv")))


def published_runs(rows: Iterable[Row], folder: Path | None = None, stack: str | None = None) -> list[PublishedRun]:
    """Rows as runs of the preset. folder: of the stacks, None for those that ship; stack: one for all rows."""
    return [
        PublishedRun(
            name=row.get("id", ""), card=_named(card_of(row)), grid=grid_of(row), preset=PRESET,
            stack=stack or (str(_file(folder, version_of(row))) if folder else version_of(row)),
            measured_s=float(row["step_s"]) if row.get("step_s") else None, family=row["model"],
            peak_bytes=float(row["mem_gb"]) * GIB if row.get("mem_gb") else None,
        )
        for row in rows
    ]  # fmt: skip


def _file(folder: Path, version: str) -> Path:
    return folder / f"{version}.json"


def version_of(row: Row) -> str:
    """The stack that made a run. Pipelines of several nodes ran with torch's checks of collectives, and those with
    tensor groups of 32 are left of an older version's, of which others were made anew or are marked suspect."""
    grid = grid_of(row)
    if grid.pipeline == 1 or grid.devices <= grid.node_devices:
        return STACK
    return OLDER_STACK if grid.tensor == 32 else CHECKED_STACK


def _named(card: ModelCard) -> ModelCard:
    """The card that ships with these sizes, the same where none does."""
    shipped = f"llama-{card.name.lower()}-ultrascale"
    return read_card(shipped) if shipped in cards() else card


HEADINGS = (
    "| rows predicted | rows | median | mean | bias | P90 | rank | regret | memory |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def summary(name: str, rows: Sequence[Row], folder: Path) -> str:
    """One line of a Markdown table, by the stacks in a folder."""
    figures = Figures.of(all_predicted(published_runs(rows, folder)))
    return (
        f"| {name} | {figures.steps} | {figures.median:.1%} | {figures.mean:.1%} | {figures.bias:+.1%} | "
        f"{figures.p90:.0%} | {figures.rank:.3f} | {figures.regret:.1%} / {figures.worst_regret:.0%} | "
        f"{figures.memory:.1%} |"
    )


def calibrating(rows: Sequence[Row]) -> list[Row]:
    """A sample of the rows whose tensor groups lie within a node: what others take is their network's to predict."""
    return sampled([row for row in rows if int(row["tp"]) <= TrainingGrid().node_devices], CALIBRATED_ON)


def sampled(rows: Sequence[Row], count: int) -> list[Row]:
    """At most `count` of some rows, drawn with one seed."""
    return random.Random(1).sample(list(rows), min(count, len(rows)))


def calibrated_on(rows: Sequence[Row], folder: Path) -> TrainingStack:
    """The stack of checked runs calibrated on a sample of the rows; it and its other versions are written."""
    plans = []
    for row in calibrating(rows):
        plan = measured_plan(row)
        plans.append(replace(plan, runtime=UNCHECKED) if version_of(row) == STACK else plan)
    fitted = calibrated(read_stack(CHECKED_STACK), plans, read_preset(PRESET).build)
    pause_s = read_stack(OLDER_STACK).runtime.message_pause_s
    fields: Mapping[str, Mapping[str, Any]] = {STACK: UNCHECKED, OLDER_STACK: {"message_pause_s": pause_s}}
    for version in VERSIONS:
        runtime = replace(fitted.runtime, **fields.get(version, {}))
        write_json(replace(fitted, name=version, runtime=runtime), _file(folder, version))
    return fitted


def cross_validation(rows: Sequence[Row], column: str, folder: Path) -> str:
    """A table of errors on what a calibration did not see: all rows of a "model", or of a number of "nodes".

    folder: where the stacks are written, a folder for each.
    """
    lines = [HEADINGS]
    for value in sorted({row[column] for row in rows}, key=lambda text: (len(text), text)):
        without, left_out = folder / f"without-{column}-{value}", [row for row in rows if row[column] == value]
        if not _file(without, STACK).exists():
            without.mkdir(parents=True, exist_ok=True)
            calibrated_on([row for row in rows if row[column] != value], without)
        name = f"{value}{' nodes' if column == 'nodes' else ''}, calibrated without"
        lines.append(summary(name, sampled(left_out, PREDICTED), without))
    return "\n".join(lines)


def answer(rows: Sequence[Row], model: str, nodes: str) -> str:
    """The plans of `model` on `nodes` nodes that are predicted best by the stack that ships, beside their runs.

    Plans that were not measured are left out.
    """
    runs = published_runs(row for row in rows if (row["model"], row["nodes"]) == (model, nodes))
    done = [(run, step) for run in runs if (step := predicted(run)).predicted_s is not None]
    order = sorted(run.measured_s or 0.0 for run, _ in done)
    lines = []
    for run, step in sorted(done, key=lambda each: each[1].predicted_s or 0.0)[:SHOWN]:
        grid = run.grid
        lines.append(
            [
                grid.data, grid.tensor, grid.pipeline, grid.zero_stage, f"{grid.microbatch} x {grid.accumulation}",
                f"{step.predicted_s:.3f}", f"{run.measured_s:.3f}", f"{step.error:+.1%}",
                f"{order.index(run.measured_s or 0.0) + 1} of {len(done)}", f"{(step.peak_bytes or 0) / GIB:.1f}",
                f"{(run.peak_bytes or 0) / GIB:.1f}",
            ]
        )  # fmt: skip
    headings = ["data", "tensor", "pipeline", "ZeRO", "micro", "predicted s", "measured s", "error"]
    return table([*headings, "measured rank", "predicted GiB", "measured GiB"], lines)


def constants_table(stack: TrainingStack) -> str:
    """Every calibrated constant with its bounds and what other sources let expect."""
    rows = [
        [
            f"`{name}`", f"{constant_of(stack, name):.4g}", f"{known.low:.4g} to {known.high:.4g}",
            f"{known.expected:.4g} +- {known.width:.2g}",
        ]
        for name, known in CONSTANTS.items()
    ]  # fmt: skip
    return table(["constant", "value", "bounds", "expected"], rows)


def write_predictions(runs: Sequence[PublishedRun], path: Path) -> None:
    """One line per run: seconds, GiB of the first device, and 1 where it does not run."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "pred_step_s", "pred_mem_gb", "pred_oom"))
        for step in all_predicted(runs):
            if step.predicted_s is None:
                writer.writerow((step.name, "", "", 1))
            else:
                peak_gib = (step.peak_bytes or 0.0) / GIB
                writer.writerow((step.name, f"{step.predicted_s:.6g}", f"{peak_gib:.4g}", int(not step.fits)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rows", type=Path, help="default: the benchmark's in SHARDSCOPE_DATA")
    parser.add_argument("--stacks", type=Path, help="folder of calibrated stacks")
    parser.add_argument("--stack", help="of all predictions; default: that of the version which made a run")
    parser.add_argument("--predictions", type=Path)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--cross-validate", choices=("model", "nodes"))
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--answer", nargs=2, metavar=("MODEL", "NODES"))
    args = parser.parse_args(arguments)
    if (args.calibrate or args.cross_validate) and args.stacks is None:
        parser.error("--stacks says in which folder stacks are written")
    if args.constants:
        print(constants_table(read_stack(CHECKED_STACK)))
    if args.predictions is not None:
        every = read_rows(args.rows or shared_data() / "ultrascale" / "visible.csv")
        write_predictions(published_runs(every, args.stacks, args.stack), args.predictions)
    if args.calibrate:
        rows = usable_rows(args.rows)
        fitted = calibrated_on(rows, args.stacks)
        print(HEADINGS, summary("those of the calibration", calibrating(rows), args.stacks), *fitted.remarks, sep="\n")
    if args.answer:
        print(answer(usable_rows(args.rows), *args.answer))
    if args.cross_validate:
        print(cross_validation(usable_rows(args.rows), args.cross_validate, args.stacks))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
