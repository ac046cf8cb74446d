"""Write a standalone HTML report of the step under one or several strategies.

The file needs no server and has the figures of the dashboard, the timeline included. Strategies that cannot be built
for this network and cluster are listed with the reason.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from simulator import files
from simulator.cli import _effects, _options, _printing, _strategy
from simulator.errors import InputError, MissingExtraError
from simulator.one_line_parser import count, option
from simulator.terminal import say

if TYPE_CHECKING:
    from dashboard.figures.standalone import Section


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser)
    option(parser, "--strategies NAMES", "names with commas", default="data,pipeline,hypergraph")
    option(parser, "--microbatches M", "micro-batches per batch", count)
    option(parser, "--output FILE", "default report.html", default="report.html")
    option(parser, "--json", "print what was written, and each step, as JSON")
    _strategy.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from dashboard.figures.standalone import standalone

    sections = _sections(args)
    failed = [section for section in sections if section.run is None]  # on stderr, as the file may be standard output
    say(*(f"{section.title} cannot be built: {section.reason}" for section in failed), stream=sys.stderr)
    files.write_text_atomic(args.output, standalone(sections))
    if args.json:
        rows: list[dict[str, object]] = [
            {
                "strategy": section.title,
                **({"error": section.reason} if section.run is None else section.run.report.figures()),
            }
            for section in sections
        ]
        _printing.print_json({"output": args.output, "strategies": rows})
    elif args.output != "-":
        print(f"{args.output}: {', '.join(section.title for section in sections if section.run is not None)}")
    return 0 if any(section.run is not None for section in sections) else 2


def _sections(args: argparse.Namespace) -> list[Section]:
    """One section per strategy, in the order asked for."""
    from dashboard.figures.standalone import Section
    from simulator.cli.compare import simulate_strategy, strategy_names

    _effects.check_step(args)
    profile = _options.read_profile(args)
    cluster = _options.read_cluster(args, args.sync)
    names, sections = strategy_names(args.strategies), []
    _effects.check_strategies(args, names)
    with _printing.progress() as progress:
        for number, name in enumerate(names, start=1):
            if progress:
                progress(f"{name}, strategy {number} of {len(names)}")
            try:
                run, reason = simulate_strategy(name, profile, cluster, args), ""
            except (InputError, MissingExtraError) as error:
                run, reason = None, str(error)
            sections.append(Section(title=name, profile=profile, cluster=cluster, run=run, reason=reason))
    return sections
