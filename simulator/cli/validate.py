"""Predict real training runs on a shaped network, make them, and report the error (needs root and torch).

Calibrates links and profiles networks once, predicts every run from those alone, makes the run, prints the error.
Results are stored as they come; the same command goes on where it was broken off.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cli import _printing
from simulator.cli._tables import new_table, print_table
from simulator.errors import RunError, needing, require
from simulator.one_line_parser import count, option
from simulator.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simulator.cluster import Cluster
    from simulator.plan import Plan
    from simulator.workload import Profile
    from traces.results.validation_cases import Case
    from traces.results.validations import Summary, ValidatedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--only TEXT", "the runs whose names contain this")
    option(parser, "--output DIR", "(default %(default)s)", default="out/validation")
    option(parser, "--rounds N", "how often to measure and run (default 3)", count, default=3)
    option(parser, "--json", "print runs and summary as JSON; progress on stderr")
    option(parser, "--list", "print the names of the runs and end")


def run(args: argparse.Namespace) -> None:
    with needing("torch", "validate"):
        from traces.validation import validate
    from traces.results import validation_cases
    from traces.results.validations import summarised

    folder = Path(args.output)
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    require(there.is_dir() or not there.exists(), "--output", folder, f"{there} is a file; name a folder")
    cases = [case for case in validation_cases.local() if args.only is None or args.only in case.name]
    require(len(cases) > 0, "--only", repr(args.only), "no run has that in its name; --list shows them")
    if args.list:
        names = [case.name for case in cases]
        if args.json:
            _printing.print_json({"runs": names})
        else:
            print("\n".join(names))
        return
    outcomes = validate.validate(
        cases,
        folder,
        make_plan,
        say=lambda line: print(line, file=sys.stderr if args.json else sys.stdout, flush=True),
        rounds=args.rounds,
    )
    if not outcomes:
        raise RunError("no run succeeded; the lines above say why")
    summary = summarised(outcomes)
    if args.json:
        rows = [
            {
                "name": x.case.name,
                "predicted_s": x.predicted_s,
                "actual_s": x.actual_s,
                "error_ratio": x.error,
                "stolen_share": x.stolen_share,
            }
            for x in outcomes
        ]
        _printing.print_json({"runs": rows, "summary": asdict(summary)})
        return
    print_outcomes(outcomes, args.rounds)


def _summary_lines(summary: Summary, outcomes: Sequence[ValidatedRun], rounds: int) -> Iterator[str]:
    """Accuracy of all runs, of those that the host disturbed, of the first of several rounds, at the run's speed."""
    from traces.results.validations import disturbed_words

    yield (
        f"{summary.runs} runs: mean absolute error {summary.mean_absolute_error:.1%}, bias {summary.bias:+.1%}, "
        f"worst {summary.worst_error:+.1%} ({summary.worst}); volume within {abs(summary.worst_bytes_error):.1%}"
        + ("" if summary.covered is None else f"; {summary.covered:.0%} within their predicted interval")
    )
    if words := disturbed_words(outcomes):
        yield words
    if summary.first_round and rounds > 1:
        mean, bias, worst = summary.first_round
        yield f"the first round alone, as predicted before it: mean {mean:.1%}, bias {bias:+.1%}, worst {worst:+.1%}"
    if summary.at_run_speed:
        mean, bias, worst = summary.at_run_speed
        yield f"with devices as fast as in the runs: mean {mean:.1%}, bias {bias:+.1%}, worst {worst:+.1%}"


def make_plan(case: Case, profile: Profile, cluster: Cluster) -> Plan:
    """The plan of a validation run, by the strategy that it names."""
    import partitioners
    from simulator.plan import Synchronisation, split_settings

    options = dict(case.options)
    if "share" in options:  # of the work, for the first of two stages: as if its device were that much slower
        share = float(options.pop("share"))
        first, *others = cluster.devices
        cluster = replace(cluster, devices=(replace(first, speed=first.speed * share / (1 - share)), *others))
    synchronisation = Synchronisation(
        collective=case.collective,
        bucket_bytes=case.bucket_bytes,
        first_bucket_bytes=case.first_bucket_bytes,
        broadcast_bytes=_broadcast_bytes(case),
    )
    step, own = split_settings({"batch_size": case.batch_size, "synchronisation": synchronisation, **options})
    if "judged" in partitioners.options(case.strategy):
        own["judged"] = False  # runs are compared on all ranks of their network
    return partitioners.make_plan(case.strategy, profile, cluster, step, **own)


def _broadcast_bytes(case: Case) -> float:
    """What DistributedDataParallel sends as a step begins, where it is told nothing: the network's buffers."""
    from traces.zoo.networks import load

    if case.via != "ddp" or not case.defaults:
        return 0.0
    return float(sum(buffer.numel() * buffer.element_size() for buffer in load(case.model).build().buffers()))


def print_outcomes(outcomes: Sequence[ValidatedRun], rounds: int) -> None:
    """A row of each run, then the summary."""
    from traces.results.validations import summarised

    header = ("run", "predicted", "actual", "spread", "drift", "error", "MB sent", "counted", "MB held", "measured")
    table = new_table(*header)
    for outcome in outcomes:
        table.add_row(*row(outcome))
    print_table(table)
    say(*_summary_lines(summarised(outcomes), outcomes, rounds))


def row(outcome: ValidatedRun) -> tuple[str, ...]:
    """An outcome in words, one for each column of the table."""
    measured = outcome.actual_memory_bytes
    return (
        outcome.case.name,
        f"{outcome.predicted_s * 1e3:.1f} ms",
        f"{outcome.actual_s * 1e3:.1f} ms",
        f"{outcome.actual_spread_s * 1e3:.1f} ms",
        f"{outcome.drift_s * 1e3:.1f} ms",
        f"{outcome.error:+.1%}",
        f"{outcome.predicted_bytes / 1e6:.2f}",
        f"{outcome.counted_bytes / 1e6:.2f}",
        f"{outcome.predicted_memory_bytes / 1e6:.1f}",
        "" if measured is None else f"{measured / 1e6:.1f}",
    )
