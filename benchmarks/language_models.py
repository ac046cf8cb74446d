"""Predict steps and memory of published language-model runs, and calibrate on them.

    python -m benchmarks.language_models --rows CSV --predictions OUT.csv [--stack NAME|FILE]
    python -m benchmarks.language_models --rows CSV --calibrate STACK.json [--stack NAME|FILE]
    python -m benchmarks.language_models --cross-validate
    python -m benchmarks.language_models --answer MODEL NODES
    python -m benchmarks.language_models --few
    python -m benchmarks.language_models --constants

The CSV is of the form of the Ultra-Scale Playbook's benchmark (a run per row: model, layers, hidden, heads, ffn, vocab,
seq, tied_embeddings, dp, tp, pp, zero, mbs, grad_acc; step_s and mem_gb where it was measured). Predictions have the
columns id, pred_step_s, pred_mem_gb, pred_oom: 1 where memory does not suffice, and where several stages have no
parameters at micro-batches of 2 and more, as all such runs failed for a reason that is not known. Rows marked suspect,
or whose batch is not what they say, are left out of calibrations.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.published import shared_data, table
from simulator.transformers.accelerators import GIB
from simulator.transformers.calibration import calibrated
from simulator.transformers.grid_interval import grid_interval
from simulator.transformers.measured_rows import Row, card_of, grid_of, measured_plan, read_rows, usable
from simulator.transformers.step_memory import leaves_stages_empty, stage_memories, verdict
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_stack import StackConstants, TrainingStack, read_stack, write_stack

FEW = {
    ("8B", "4", "4", "1", "1", "1"), ("8B", "4", "4", "1", "1", "4"),  # a group of 4 at two micro-batches
    ("8B", "1", "8", "1", "0", "1"), ("8B", "1", "16", "1", "0", "1"),  # a node; a group across nodes
    ("8B", "1", "8", "2", "0", "1"), ("8B", "32", "4", "1", "1", "2"),  # a pipeline across nodes; data over 16
}  # fmt: skip
"""Runs that a user can afford: (model, data, tensor, pipeline, ZeRO stage, micro-batch)."""
SHOWN = 5
"""Plans of an answer."""


def predicted(row: Row, stack: TrainingStack) -> tuple[float, float, bool]:
    """(seconds, GiB of the first device, whether it runs out of memory) of a row."""
    card, grid = card_of(row), grid_of(row)
    memories = stage_memories(card, grid, stack)
    opinion = verdict(card, grid, stack, memories)
    seconds = float(step_seconds(card, grid, stack, retried=opinion.retried).step_s)
    limit = stack.constants.border_bytes  # also of plans that a runtime's rule refuses
    fails = any(float(memory.pressing) > limit for memory in memories)
    fails |= grid.microbatch > 1 and leaves_stages_empty(card, grid, stack)
    return seconds, float(memories[0].peak(stack.constants)) / GIB, fails


def errors(rows: Sequence[Row], stack: TrainingStack) -> tuple[list[float], list[float]]:
    """Relative errors of step and memory, row by row."""
    pairs = [predicted(row, stack) for row in rows]
    steps = [step / float(row["step_s"]) - 1 for (step, _, _), row in zip(pairs, rows, strict=True)]
    return steps, [peak / float(row["mem_gb"]) - 1 for (_, peak, _), row in zip(pairs, rows, strict=True)]


def rank_and_regret(rows: Sequence[Row], steps: Sequence[float]) -> tuple[float, float, float]:
    """(rank correlation, mean regret, largest regret) over groups of one model on as many nodes, of 5 rows or more."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row, error in zip(rows, steps, strict=True):
        measured = float(row["step_s"])
        groups.setdefault((row["model"], row["nodes"]), []).append((measured * (1 + error), measured))
    kept = [group for group in groups.values() if len(group) >= 5]
    ranks = [_spearman(*zip(*group, strict=True)) for group in kept]
    regrets = [min(group)[1] / min(measured for _, measured in group) - 1 for group in kept]
    weights = [len(group) for group in kept]
    return float(np.average(ranks, weights=weights)), float(np.mean(regrets)), max(regrets)


def _spearman(first: Sequence[float], second: Sequence[float]) -> float:
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def summary(name: str, rows: Sequence[Row], stack: TrainingStack) -> str:
    """One line of a Markdown table."""
    steps, peaks = (np.array(values) for values in errors(rows, stack))
    rank, regret, worst = rank_and_regret(rows, list(steps))
    return (
        f"| {name} | {len(rows)} | {np.median(abs(steps)):.1%} | {abs(steps).mean():.1%} | {steps.mean():+.1%} | "
        f"{np.quantile(abs(steps), 0.9):.0%} | {rank:.3f} | {regret:.1%} / {worst:.0%} | {abs(peaks).mean():.1%} |"
    )


HEADINGS = (
    "| rows predicted | rows | median | mean | bias | P90 | rank | regret | memory |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def cross_validation(rows: Sequence[Row], stack: TrainingStack) -> str:
    """A table of errors on what a calibration did not see: whole models, and whole numbers of nodes."""
    lines = [HEADINGS, summary("all, calibrated on the same", rows, calibrated(stack, list(map(measured_plan, rows))))]
    for column, word in (("model", "{}"), ("nodes", "{} nodes")):
        for value in sorted({row[column] for row in rows}, key=lambda text: (len(text), text)):
            lines.append(_left_out(rows, stack, column, value, word.format(value)))
    return "\n".join(lines)


def _left_out(rows: Sequence[Row], stack: TrainingStack, column: str, value: str, name: str) -> str:
    seen = [measured_plan(row) for row in rows if row[column] != value]
    return summary(
        f"{name}, calibrated without", [row for row in rows if row[column] == value], calibrated(stack, seen)
    )


def few_runs(rows: Sequence[Row], stack: TrainingStack) -> str:
    """What FEW runs of the 8B tell of all others, from the constants that a new stack starts with."""
    names = ("model", "dp", "tp", "pp", "zero", "mbs")
    few = [row for row in rows if tuple(row[name] for name in names) in FEW]
    fitted = calibrated(replace(stack, constants=StackConstants()), [measured_plan(row) for row in few])
    lines = [summary(f"all others, calibrated on {len(few)} runs", [r for r in rows if r not in few], fitted)]
    lines += [
        summary(f"{model}, so", [r for r in rows if r not in few and r["model"] == model], fitted)
        for model in ("1B", "8B")
    ]
    return "\n".join([HEADINGS, *lines])


def answer(rows: Sequence[Row], stack: TrainingStack, model: str, nodes: str) -> str:
    """The plans of `model` on `nodes` nodes that are predicted best, beside their runs.

    By a stack calibrated without any run of that model or on as many nodes. Plans that were not measured are left out.
    """
    seen = [measured_plan(row) for row in rows if model != row["model"] and nodes != row["nodes"]]
    fitted = calibrated(stack, seen)
    runs = [row for row in rows if (row["model"], row["nodes"]) == (model, nodes)]
    ranked = sorted((predicted(row, fitted), row["id"], row) for row in runs)
    order = {row["id"]: rank for rank, row in enumerate(sorted(runs, key=lambda row: float(row["step_s"])), start=1)}
    lines = []
    for (step_s, peak_gib, _), _, row in ranked[:SHOWN]:
        low_s, high_s = grid_interval(card_of(row), grid_of(row), fitted)
        measured_s = float(row["step_s"])
        lines.append(
            [
                *(row[name] for name in ("dp", "tp", "pp", "zero")), f"{row['mbs']} x {row['grad_acc']}",
                f"{step_s:.3f} ({low_s:.3f} to {high_s:.3f})", f"{measured_s:.3f}", f"{step_s / measured_s - 1:+.1%}",
                f"{order[row['id']]} of {len(runs)}", f"{peak_gib:.1f}", row["mem_gb"],
            ]
        )  # fmt: skip
    headings = ["data", "tensor", "pipeline", "ZeRO", "micro", "predicted s (80 %)", "measured s", "error"]
    return table([*headings, "measured rank", "predicted GiB", "measured GiB"], lines)


def constants_table(stack: TrainingStack) -> str:
    """Every calibrated constant with its bounds and what other sources let expect."""
    rows = []
    for name, (low, high) in stack.bounds.items():
        centre, width = stack.expected.get(name, (None, None))
        prior = f"{centre:.4g} +- {width:.2g}" if centre is not None else ""
        rows.append([f"`{name}`", f"{getattr(stack.constants, name):.4g}", f"{low:.4g} to {high:.4g}", prior])
    return table(["constant", "value", "bounds", "expected"], rows)


def write_predictions(rows: Sequence[Row], stack: TrainingStack, path: Path) -> None:
    """One line per row: seconds, GiB of the first device, and 1 where it runs out of memory."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "pred_step_s", "pred_mem_gb", "pred_oom"))
        for row in rows:
            step_s, peak_gib, fails = predicted(row, stack)
            writer.writerow((row["id"], f"{step_s:.6g}", f"{peak_gib:.4g}", int(fails)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rows", type=Path, help="default: the benchmark's in SHARDSCOPE_DATA")
    parser.add_argument("--stack", default="nanotron-h100")
    parser.add_argument("--predictions", type=Path)
    parser.add_argument("--calibrate", type=Path)
    parser.add_argument("--cross-validate", action="store_true")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--answer", nargs=2, metavar=("MODEL", "NODES"))
    args = parser.parse_args(arguments)
    stack = read_stack(args.stack)
    rows = read_rows(args.rows or shared_data() / "ultrascale" / "visible.csv")
    if args.predictions is not None:
        write_predictions(rows, stack, args.predictions)
    if args.calibrate is not None:
        fitted = calibrated(stack, [measured_plan(row) for row in usable(rows)])
        write_stack(fitted, args.calibrate)
        print(HEADINGS, summary("all, calibrated on the same", usable(rows), fitted), *fitted.remarks, sep="\n")
    if args.constants:
        print(constants_table(stack))
    if args.few:
        print(few_runs(usable(rows), stack))
    if args.answer:
        print(answer(usable(rows), stack, *args.answer))
    if args.cross_validate:
        print(cross_validation(usable(rows), stack))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
