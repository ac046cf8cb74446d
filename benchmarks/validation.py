"""The tables of the documentation out of the validation that the dashboard ships.

    python -m benchmarks.validation accuracy      print a table: accuracy, machine or runs
    python -m benchmarks.validation --ship FOLDER    ship what `shardscope validate --output FOLDER` wrote

`python -m benchmarks.pasted --write` then puts the tables into the pages.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from pathlib import Path

from benchmarks.published import table
from dashboard.state.validations import SHIPPED
from simulator import collectives, files
from simulator.cli.validate import row
from traces.results.validations import ValidatedRun, Validation, summarised


def main() -> None:
    parser = argparse.ArgumentParser(description="The tables of the shipped validation.")
    parser.add_argument("table", nargs="?", choices=("accuracy", "machine", "runs"))
    parser.add_argument("--ship", type=Path, metavar="FOLDER", help="make FOLDER's validation the shipped one")
    args = parser.parse_args()
    if args.ship:
        shutil.copy(args.ship / "validation.json", SHIPPED)
    if args.table:
        tables = {"accuracy": accuracy, "machine": machine, "runs": runs}
        print(tables[args.table](files.read_json(SHIPPED, Validation)))


def machine(stored: Validation) -> str:
    """Where and when the runs were made, and what else the machine did."""
    rounds = [made for outcome in stored.outcomes for made in outcome.rounds]
    dates = sorted(made.date for made in rounds)
    loads = [made.load for made in rounds]
    return (
        f"{dates[0]} to {dates[-1][-5:]} UTC, {stored.machine} each, {stored.cores} cores, torch "
        f"{stored.software['torch']}, Python {stored.software['python']}. Processes in the run queue as a run began: "
        f"median {statistics.median(loads):.1f}, at most {max(loads):.1f}, those of the run before included."
    )


def accuracy(stored: Validation) -> str:
    """Errors by kind of run."""
    kinds: dict[str, list[ValidatedRun]] = {}
    for outcome in stored.outcomes:
        kinds.setdefault(_kind(outcome), []).append(outcome)
    rows = [_summary(kind, kinds[kind]) for kind in sorted(kinds)]
    worst_bytes = summarised(stored.outcomes).worst_bytes_error
    return "\n\n".join(
        [
            table(
                ["runs", "number", "mean absolute error", "bias", "worst"],
                [*rows, _summary("**all**", list(stored.outcomes))],
            ),
            f"Predicted and counted bytes agree within {abs(worst_bytes):.1%} in every run.",
        ]
    )


def runs(stored: Validation) -> str:
    """Every run, worst first."""
    header = ["run", "predicted", "actual", "spread", "drift", "error"]
    header += ["MB sent", "counted", "MB held", "measured", "load"]
    ordered = sorted(stored.outcomes, key=lambda outcome: -abs(outcome.error))
    return table(header, [[*row(outcome), f"{outcome.load:.1f}"] for outcome in ordered])


def _kind(outcome: ValidatedRun) -> str:
    case = outcome.case
    if case.straggler is not None:
        return "data parallel, DDP, a straggler"
    if case.via == "ddp":
        return f"data parallel, DDP, {case.network.ranks} ranks"
    if case.via == "pipelining":
        return f"pipeline, torch, {case.options['schedule']}"
    return (
        "parameter server, executor"
        if collectives.load(case.collective).updates_on_server
        else f"{case.strategy}, executor"
    )


def _summary(kind: str, outcomes: list[ValidatedRun]) -> list[object]:
    summary = summarised(outcomes)
    errors = f"{summary.mean_absolute_error:.1%}", f"{summary.bias:+.1%}", f"{summary.worst_error:+.1%}"
    return [kind, summary.runs, *errors]


if __name__ == "__main__":
    main()
