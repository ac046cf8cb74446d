"""Explain a plan: how layers are sharded, what they communicate, and what would make the step faster.

Profile and cluster are those of the command that made the plan, as the plan file records it; with --cluster,
what this command line says counts instead.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from simulator.cli import _effects, _options
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.plan import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a plan file that `shardscope partition` wrote")
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON instead")
    _options.add_inputs(parser, required=False)


def run(args: argparse.Namespace) -> int:
    from simulator import files
    from simulator.cli import _explaining, _printing
    from simulator.run import run as simulate
    from simulator.studies.explain import explain

    if not args.cluster:
        _effects.check_made_elsewhere(args, ("profile", "json"))
    _effects.check_step(args)
    plan = files.read_plan(args.plan)
    made = args if args.cluster else _made_by(plan)
    profile = files.read_profile(args.profile or made.profile or plan.model)
    cluster = _options.read_cluster(made, plan.synchronisation.collective)
    done = simulate(profile, cluster, plan, runtime=_options.read_runtime(made))
    explanation = explain(profile, cluster, done)
    if args.json:
        _printing.print_json(_explaining.explanation_json(explanation, profile, done))
    else:
        _explaining.print_explanation(explanation, profile, done)
    return 0


def _made_by(plan: Plan) -> argparse.Namespace:
    from simulator import cli

    words = shlex.split(plan.command)
    if len(words) < 2:
        raise InputError("command: the plan does not record the command that made it; say --cluster and --profile")
    return cli.parse(words[1:])
