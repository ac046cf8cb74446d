"""Explain a plan: how layers are sharded, what they communicate, and what would make the step faster.

Profile and cluster are those of the command that made the plan, as the plan file records it; with --cluster,
what this command line says counts instead.
"""

from __future__ import annotations

import argparse

from simulator.cli import _options, _planned
from simulator.one_line_parser import option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "plan PLAN", "a plan file that `shardscope partition` wrote")
    option(parser, "--json", "print the explanation as JSON instead")
    _options.add_inputs(parser, required=False)


def run(args: argparse.Namespace) -> None:
    from simulator.cli import _explaining, _printing
    from simulator.studies.explain import explain

    profile, cluster, done = _planned.simulated(args, ())
    explanation = explain(profile, cluster, done)
    if args.json:
        _printing.print_json(_explaining.explanation_json(explanation, done))
    else:
        _explaining.print_explanation(explanation, profile, done)
