"""Put the tables of a stored validation into the documentation. Usage: python -m benchmarks.validation FOLDER

FOLDER is what `shardscope validate --output FOLDER` wrote. Its validation.json becomes the one that the dashboard
ships, and the tables between `<!-- NAME -->` and `<!-- end -->` in docs/validation.md and README.md are made anew.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
from pathlib import Path

from benchmarks.published import table
from dashboard.state.validations import SHIPPED
from simulator import collectives, files
from simulator.cli.validate import row
from traces.results.validations import ValidatedRun, Validation, summarised

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    folder = Path(sys.argv[1])
    stored = files.read_json(folder / "validation.json", Validation)
    shutil.copy(folder / "validation.json", SHIPPED)
    parts = {"accuracy": accuracy(stored), "machine": machine(stored), "runs": runs(stored)}
    for page in (ROOT / "README.md", ROOT / "docs" / "validation.md"):
        page.write_text(filled(page.read_text(), parts))


def filled(text: str, parts: dict[str, str]) -> str:
    """`text` with what stands between the marks replaced."""

    def replacement(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{parts[found[1]]}\n<!-- end -->"

    return re.sub(rf"<!-- ({'|'.join(parts)}) -->.*?<!-- end -->", replacement, text, flags=re.DOTALL)


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
    found = summarised(outcomes)
    errors = f"{found.mean_absolute_error:.1%}", f"{found.bias:+.1%}", f"{found.worst_error:+.1%}"
    return [kind, found.runs, *errors]


if __name__ == "__main__":
    main()
