"""The profile and the machine that a plan file was made for, as it says itself or as the command line says instead."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from simulator.cli import _effects, _options
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.plan import Plan
    from simulator.run import Run
    from simulator.workload import Profile


def simulated(args: argparse.Namespace, kept: tuple[str, ...]) -> tuple[Profile, Cluster, Run]:
    """The plan of `args.plan`, simulated. kept: options that count also without --cluster. Raises InputError."""
    from simulator import files
    from simulator.run import run as simulate

    if not args.cluster:
        _effects.check_made_elsewhere(args, ("profile", "json", *kept))
    _effects.check_step(args)
    plan = files.read_plan(args.plan)
    settings = args if args.cluster else made_by(plan)
    profile = _options.profile_on(args.profile or settings.profile or plan.model, settings.cluster)
    cluster = _options.read_cluster(settings, plan.synchronisation.collective)
    return profile, cluster, simulate(profile, cluster, plan, runtime=_options.read_runtime(settings, profile))


def made_by(plan: Plan) -> argparse.Namespace:
    """The arguments of the command that made the plan."""
    from simulator import cli

    if not says_how_made(plan):
        raise InputError("command: the plan does not record the command that made it; say --cluster and --profile")
    return cli.parse(shlex.split(plan.command)[1:])


def says_how_made(plan: Plan) -> bool:
    """Whether the plan records the command that made it."""
    return len(shlex.split(plan.command)) > 1
