"""What Validate says: its numbers on top, one run in detail, the table of runs. Components, no callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dash import html

from dashboard.figures.validation import CLOSE
from dashboard.frame.cards import beside, card, column, facts, plain_table, scrolled, share_column
from dashboard.state.validations import Stored
from dashboard.words.kpis import Kpi, seconds_range
from simulator.errors import InputError
from simulator.units import format_bytes, format_longer, format_time
from traces.results.timeline_comparison import Comparison
from traces.results.validations import DISTURBED, ValidatedRun, disturbed_words, summarised

_WORST = 5
COLUMNS: tuple[tuple[dict[str, Any], Callable[[ValidatedRun], Any]], ...] = (
    (column("run", "run", 530, flex=1, minWidth=530), lambda run: run.case.name),
    (share_column("error", "error", 100, "+.1%"), lambda run: run.error),
    (column("predicted_ms", "predicted (ms)", 140, decimals=1), lambda run: run.predicted_s * 1e3),
    (column("expected", "90% sure of", 165, sortable=False, hide=True), lambda run: seconds_range(run.interval_s)),
    (column("actual_ms", "actual (ms)", 120, decimals=1), lambda run: run.actual_s * 1e3),
    (column("spread_ms", "spread (ms)", 120, decimals=1), lambda run: run.actual_spread_s * 1e3),
    (column("predicted_mib", "predicted (MiB)", 150, decimals=1), lambda run: run.predicted_bytes / 2**20),
    (column("counted_mib", "counted (MiB)", 130, decimals=1), lambda run: run.counted_bytes / 2**20),
    (column("held_mib", "memory (MiB)", 130, decimals=1), lambda run: run.predicted_memory_bytes / 2**20),
    (
        column("measured_mib", "measured (MiB)", 155, decimals=1),
        lambda run: None if run.actual_memory_bytes is None else run.actual_memory_bytes / 2**20,
    ),
    (column("load", "load", 75, decimals=1), lambda run: run.load),
    (
        share_column("stolen", "host took", 100, ".1%", f"(params.value > {DISTURBED} ? '▲ ' : '')", hide=True),
        lambda run: run.stolen_share,
    ),
)
"""Of the table of runs, and what each shows of one."""


def kpis(outcomes: Sequence[ValidatedRun]) -> list[Kpi]:
    """Runs, mean absolute error, bias, how many are close, the worst, the volume."""
    summary = summarised(outcomes)
    close = sum(abs(outcome.error) <= CLOSE for outcome in outcomes)
    inside = [] if summary.covered is None else [
        Kpi(label="In their interval", value=f"{summary.covered:.0%}", hint="runs within their 5 to 95 % interval")
    ]  # fmt: skip
    return [
        Kpi(label="Runs", value=f"{summary.runs}", hint="real runs that were predicted beforehand"),
        Kpi(label="Mean absolute error", value=f"{summary.mean_absolute_error:.1%}", hint="of the predicted step"),
        Kpi(label="Bias", value=f"{summary.bias:+.1%}", hint="mean signed error: below 0 is predicted too fast"),
        Kpi(label=f"Within {CLOSE:.0%}", value=f"{close} of {summary.runs}", hint="runs with so small an error"),
        *inside,
        Kpi(label="Worst", value=f"{summary.worst_error:+.1%}", hint=summary.worst),
        Kpi(label="Volume, worst", value=f"{summary.worst_bytes_error:+.1%}", hint="predicted against counted bytes"),
    ]


def machine(stored: Stored) -> str:
    """What the runs were made with, and how many of them the machine's host disturbed."""
    validation = stored.validation
    software = ", ".join(f"{name} {version}" for name, version in validation.software.items())
    runs = f"{len(validation.outcomes)} runs, made on {validation.machine}, {validation.cores} cores, with {software}"
    words = disturbed_words(validation.outcomes)
    return f"{runs}; {words} (▲ in the table, hollow in the figures)." if words else f"{runs}."


def rows(outcomes: Sequence[ValidatedRun]) -> list[dict[str, Any]]:
    """The table's rows, worst first."""
    return [{shown["field"]: read(outcome) for shown, read in COLUMNS} for outcome in outcomes]


def columns(**known: bool) -> list[dict[str, Any]]:
    """The table's columns; known: of those by field that may be hidden, which any run has something for."""
    return [{**shown, "hide": not known.get(shown["field"])} if "hide" in shown else shown for shown, _ in COLUMNS]


def details(stored: Stored, outcome: ValidatedRun) -> Any:
    """Everything that is known of one run."""
    path, *worst = _tasks(stored, outcome)
    three = [facts(_setting(outcome)), facts(_numbers(outcome)), path]
    body = [beside(three, className="columns")]
    if worst:
        body.append(beside(worst, className="columns", mt="md"))
    return card("validate-run-card", f"{outcome.case.name}: {outcome.error:+.1%}", body, formats=())


def _setting(outcome: ValidatedRun) -> dict[str, str]:
    case = outcome.case
    tiers = "" if case.network.trunk_mbit is None else f", trunks of {case.network.trunk_mbit} Mbit/s"
    servers = f", {case.network.servers} parameter servers" if case.network.servers else ""
    slow = "" if case.straggler is None else f"rank {case.straggler} shares its core with a process that never rests"
    return {
        "network": f"{case.model}, batch {case.batch_size}",
        "machine": f"{case.network.ranks} ranks at {case.network.mbit} Mbit/s{tiers}{servers}",
        "strategy": ", ".join([case.strategy, *(f"{name} {value}" for name, value in case.options.items())]),
        "run by": {"ddp": "DistributedDataParallel", "pipelining": "torch.distributed.pipelining"}.get(
            case.via, "Shardscope's executor"
        ),
        "all-reduce": f"{case.collective}, buckets of {format_bytes(case.bucket_bytes)}",
        "straggler": slow,
        "date": outcome.rounds[0].date,
    }


def _numbers(outcome: ValidatedRun) -> dict[str, str]:
    count = len(outcome.rounds)
    rounds = f"{count} round{'s' if count > 1 else ''} of {outcome.rounds[0].steps} steps"
    drift = f"{format_time(outcome.drift_s)} between the fastest and the slowest round"
    direction = "short" if outcome.error < 0 else "long"
    measured = outcome.actual_memory_bytes
    return {
        "step predicted": format_time(outcome.predicted_s),
        "90% sure of": seconds_range(outcome.interval_s),
        "step actual": f"{format_time(outcome.actual_s)}, median of {rounds}",
        "drift": drift if count > 1 else "not known of one round",
        "spread of steps": f"{format_time(outcome.actual_spread_s)} ({outcome.actual_spread_s / outcome.actual_s:.1%})",
        "off by": f"{format_time(abs(outcome.predicted_s - outcome.actual_s))} too {direction}",
        "bytes predicted": format_bytes(outcome.predicted_bytes),
        "bytes counted": f"{format_bytes(outcome.counted_bytes)} ({outcome.bytes_error:+.2%})",
        "memory predicted": format_bytes(outcome.predicted_memory_bytes),
        "memory measured": "not measured" if measured is None else format_bytes(measured),
        "load": f"{outcome.load:.1f} processes in the run queue",
        "taken by the host": _taken(outcome),
    }


def _taken(outcome: ValidatedRun) -> str:
    if outcome.stolen_share is None:
        return "not known"
    over = f": over {DISTURBED:.0%}, so the run was disturbed" if outcome.disturbed else ""
    return f"{outcome.stolen_share:.1%} of the core time in the worst round{over}"


def _tasks(stored: Stored, outcome: ValidatedRun) -> list[Any]:
    """The tasks that made the difference, where they are known, else why they are not."""
    try:
        comparison = stored.explained(outcome)
    except (InputError, OSError) as error:
        return [html.Div(f"The stored timeline cannot be compared: {error}", className="figure-note")]
    if comparison is not None:
        return causes(comparison)
    kept = (
        "No timeline of this run is stored, so only its sums are known. The runs of the validation `field` come with "
        "theirs: choose it above. `shardscope validate` keeps those of every run; see them with `shardscope dashboard "
        "--validation out/validation`."
    )
    return [html.Div(kept, className="figure-note")]


def causes(comparison: Comparison) -> list[Any]:
    """What the actual step consisted of, and the tasks that were longer or later than predicted by most."""
    rows = [
        [kind.name.lower(), f"{total.tasks}", format_time(total.predicted_s), format_time(total.actual_s),
         format_longer(total.actual_s - total.predicted_s)]
        for kind, total in comparison.totals(comparison.path).items()
    ]  # fmt: skip
    rows.append(["waits between them", "", "", format_time(comparison.waits_s), ""])
    titles = ("on the path that made the step", "tasks", "predicted", "actual", "longer")
    worst = {"longest over prediction": comparison.longest(_WORST), "latest of their own": comparison.latest(_WORST)}
    tables = {titles[0]: plain_table(titles, rows)}
    for title, tasks in worst.items():
        cells = [
            [comparison.graph.describe(each.task), format_time(each.predicted_s), format_time(each.actual_s),
             format_longer(each.late_s)]
            for each in tasks
        ]  # fmt: skip
        if cells:
            tables[title] = plain_table((title, "predicted", "actual", "starts late"), cells)
    return [html.Div(table, **scrolled(title, "tasks-table")) for title, table in tables.items()]
