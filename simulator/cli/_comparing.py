"""What `compare` prints: the answer of the best strategy, then a row for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simulator.cli._answers import Priced, answer, dollars, dollars_per_million, within
from simulator.cli._printing import Shown, print_trace, say_notes
from simulator.cli._tables import new_table, print_table
from simulator.terminal import say
from simulator.units import format_bytes, format_time

if TYPE_CHECKING:
    from partitioners import StrategyChoice
    from simulator.cluster import Cluster
    from simulator.report.interval import StepInterval
    from simulator.report.metrics import Report
    from simulator.workload import Profile

_MAY_GO = ("balance", "bubble", "speed-up", "samples/s", "$/million", "how", "sent", "90% range")
"""Columns of a comparison that a narrow terminal does not get."""


def print_comparison(
    profile: Profile,
    cluster: Cluster,
    reports: Sequence[Report],
    intervals: Sequence[StepInterval],
    ways: Sequence[StrategyChoice],
    shown: Shown,
) -> None:
    """The answer of the best; a row per strategy, fastest first; those that could not be built; notes.

    ways: what each report is of.
    """
    batch = f", batch {reports[0].batch_size}{shown.batch_note}" if reports else ""
    say(f"{profile.model} on {cluster.name}, {cluster.workers} devices{batch}")
    for report, interval in list(zip(reports, intervals, strict=True))[:1]:
        first, *others = answer(report, cluster, interval, shown.change, shown.of)
        how = _how(ways[0], report)
        say(f"best: {report.strategy}, {how + ', ' if how else ''}{first}")
        say(*others)
        print()
    rows = [_comparison_row(*each, shown.of) for each in zip(reports, intervals, ways, strict=True)]
    columns = list(rows[0])[1:-1] if rows else ["step"]
    table = new_table("strategy", *columns, last="bottleneck")
    for row in rows:
        table.add_row(*row.values())
    for name in shown.failed:
        table.add_row(name, *("-" for _ in columns), "cannot be built")
    print_table(table, _MAY_GO)
    for name, why in shown.failed.items():
        say(why if why.startswith(name) else f"{name}: {why}")
    for report in reports:
        if report.verdict:
            say(f"{report.strategy}: {report.verdict}")
    say_notes([*shown.notes, *_sizes(reports, shown.verbose)])
    print_trace(shown.trace if reports else None)


def _how(choice: StrategyChoice, report: Report) -> str:
    """A choice in a few words, empty where a strategy's defaults are all."""
    options = {name: value for name, value in choice.own.items() if name not in ("judged", "objective")}
    own = [_option(name, value) for name, value in options.items()]
    counts = [f"{report.microbatches} micro-batches"] if report.microbatches > 1 else []
    zero = [choice.step.states.words] if choice.step.states.stage else []
    return ", ".join([*own, *counts, *zero])


def _option(name: str, value: object) -> str:
    return f"{'' if value else 'no '}{name}" if isinstance(value, bool) else f"{name} {value}"


def _comparison_row(report: Report, interval: StepInterval, choice: StrategyChoice, of: Priced) -> dict[str, str]:
    """Cells by the titles of their columns; a price only where there is one."""
    costs = {"$/million": dollars(dollars_per_million(report, of))} if report.dollars_per_step is not None else {}
    return {
        "strategy": report.strategy,
        "how": _how(choice, report),
        "step": format_time(report.step_s),
        "90% range": within(interval) if interval.parts else "-",
        f"{of.name}/s": f"{report.samples_per_s * of.per_sample:,.1f}",
        "speed-up": f"{report.speedup:.2f}x",
        **costs,
        "balance": f"{report.load_balance_ratio:.3f}",
        "sent": format_bytes(report.communication_bytes.total),
        "peak memory": format_bytes(report.peak_memory_bytes),
        "fits": {"fits": "yes", "does not fit": "no"}.get(report.fit, report.fit),
        "bubble": f"{report.bubble_ratio:.1%}",
        "bottleneck": f"{report.bottleneck.resource} {report.bottleneck.share:.0%}",
    }


def _sizes(reports: Sequence[Report], verbose: bool) -> Iterator[str]:
    """Which strategies compute at sizes that were not measured; verbose: of each, at which, and its step for it."""
    unmeasured = [report for report in reports if report.sizes_note]
    if verbose:
        for report in unmeasured:
            band = f"; step {' to '.join(map(format_time, report.step_band_s))}" if report.step_band_s else ""
            yield f"{report.strategy}, {report.sizes_note}{band}"
        return
    typical = [report.strategy for report in unmeasured if report.step_band_s is not None]
    if typical:
        yield (
            f"{_names(typical)}: the profile lacks sizes that it computes at; the typical curve of such devices "
            "stands in, and the 90% range counts it"
        )
    unknown = [report.strategy for report in unmeasured if report.step_band_s is None]
    if unknown:
        yield (
            f"{_names(unknown)}: the profile lacks sizes that it computes at; they are taken in proportion, "
            "how far off is not known"
        )


def _names(strategies: Sequence[str]) -> str:
    """One by name, more by their number."""
    return strategies[0] if len(strategies) == 1 else f"{len(strategies)} of these strategies"
