"""Write a standalone HTML report of the step under one or several strategies.

The file needs no server and has the figures of the dashboard, the timeline included. Strategies that cannot be built
for this network and cluster are listed with the reason.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from simulator.cli import _options, _strategy
from simulator.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from dashboard.figures.standalone import Section


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser)
    parser.add_argument("--strategies", metavar="NAMES", default="data,pipeline,hypergraph", help="names with commas")
    parser.add_argument("--microbatches", metavar="M", type=_options.count, help="micro-batches per batch")
    parser.add_argument("--output", metavar="FILE", default="report.html", help="default report.html")
    _strategy.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from dashboard.figures.standalone import standalone
    from simulator import files

    sections = _sections(args)
    files.write_text_atomic(args.output, standalone(sections))
    print(f"{args.output}: {', '.join(section.title for section in sections if section.run is not None)}")
    return 0 if any(section.run is not None for section in sections) else 2


def _sections(args: argparse.Namespace) -> list[Section]:
    """One section per strategy, in the order asked for."""
    from dashboard.figures.standalone import Section
    from simulator import files
    from simulator.cli.compare import simulate_strategy, strategy_names

    profile = files.read_profile(args.profile)
    cluster = _options.read_cluster(args, args.sync)
    sections = []
    for name in strategy_names(args.strategies):
        try:
            run, reason = simulate_strategy(name, profile, cluster, args), ""
        except (InputError, MissingExtraError) as error:
            run, reason = None, str(error)
        sections.append(Section(title=name, profile=profile, cluster=cluster, run=run, reason=reason))
    return sections
