"""Explain a plan: how layers are sharded, what they communicate, and what would make the step faster.

Profile and cluster are those of the command that made the plan, as the plan file records it, where this
command line names no --profile, or --cluster with its overrides.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from simulator.cli import _options, _plan_files, _printing, _tables
from simulator.cli._printing import say_notes
from simulator.one_line_parser import option
from simulator.terminal import say
from simulator.units import format_bytes, format_time

if TYPE_CHECKING:
    from simulator.run import Run
    from simulator.studies.explain import Explanation
    from simulator.workload import Profile

MOST_CROSSINGS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "plan PLAN", "a plan file that `partition` or `--plan-out` wrote")
    _options.add_output(parser, "the explanation")
    _options.add_inputs(parser, required=False)


def run(args: argparse.Namespace) -> None:
    from simulator.studies.explain import explain

    profile, cluster, done = _plan_files.simulated(args, ("verbose",))
    explanation = explain(profile, cluster, done)
    if args.json:
        _printing.print_json(explanation_json(explanation, done))
    else:
        print_explanation(explanation, profile, done, args.verbose)


def print_partition(profile: Profile, done: Run, path: str, notes: Iterable[str]) -> None:
    """What the plan costs and where it went; on stderr where the plan itself went to stdout."""
    stream = sys.stderr if path == "-" else sys.stdout
    say_notes(notes, stream)
    say(_summary(profile, done), stream=stream)
    if path != "-":
        say(f"plan: {path}; shardscope explain {path} says more")


def explanation_json(explanation: Explanation, done: Run) -> dict[str, object]:
    """What `explain --json` prints."""

    from simulator.studies.explain import crossing_words

    return {
        "report": done.report.to_dict(),
        "splits": [{"first": first, "last": last, "split": how} for first, last, how in explanation.splits],
        "crossings": [crossing_words(use) for use in explanation.crossings],
        "bottleneck": str(explanation.bottleneck),
        "gains": [asdict(gain) for gain in explanation.gains],
    }


def print_explanation(explanation: Explanation, profile: Profile, done: Run, verbose: bool) -> None:
    """Splits, crossings, bottleneck and gains; verbose: of every block where many are alike, and all crossings."""
    from simulator.studies.explain import crossing_words

    say(_summary(profile, done))
    if done.plan.command:
        print(f"made by: {done.plan.command}")
    splits = _tables.new_table("layers", last="split")
    few = verbose or len(explanation.splits) <= _printing.MOST_ROWS
    for first, last, how in explanation.splits if few else _folded(explanation.splits):
        splits.add_row(first if first == last else f"{first} .. {last}", how)
    print()
    _tables.print_table(splits)
    print()
    crossings = [crossing_words(use) for use in explanation.crossings]
    if not verbose:
        crossings = [": ".join(row) for row in _folded([tuple(words.split(": ", 1)) for words in crossings])]
    shown = len(crossings) if verbose else MOST_CROSSINGS
    say(*crossings[:shown])
    if crossings[shown:]:
        say(f"and {len(crossings) - shown} more that send less; --verbose adds every layer")
    if not explanation.crossings:
        say("nothing crosses between devices")
    say(f"\nbottleneck: {explanation.bottleneck}")
    for gain in explanation.gains:
        say(f"{gain.change}: {gain.speedup:.2f}x faster")


def _folded(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Rows whose names differ in their first number alone, and nothing else, as one, such as blocks.0-79.output."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for *names, what in rows:
        alike.setdefault((*(re.sub(r"\d+", "\0", name, count=1) for name in names), what), []).append(names)
    for (*marks, what), same in alike.items():
        columns = zip(*same, strict=True)
        numbers = [sorted({int(n) for name in column for n in re.findall(r"\d+", name)[:1]}) for column in columns]
        yield *(mark.replace("\0", _printing.group_name(n)) for mark, n in zip(marks, numbers, strict=True)), what


def _summary(profile: Profile, done: Run) -> str:
    report = done.report
    return (
        f"{profile.model}, {report.strategy}: step {format_time(report.step_s)}, "
        f"sends {format_bytes(report.communication_bytes.total)}, "
        f"load balance ratio {report.load_balance_ratio:.3f}, {report.verdict or 'fits'}"
    )
