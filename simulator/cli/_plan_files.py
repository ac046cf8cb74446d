"""Plan files: the command that a plan records, and what it says that the plan is for."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator import files
from simulator.cli import _effects, _options
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.plan import Plan
    from simulator.run import Run
    from simulator.runtime import Runtime
    from simulator.workload import Profile


def simulated(args: argparse.Namespace, kept: tuple[str, ...]) -> tuple[Profile, Cluster, Run]:
    """The plan of `args.plan`, simulated. kept: options that count also without --cluster. Raises InputError."""
    from simulator.run import run as simulate

    if not args.cluster:
        elsewhere = _effects.typed(args) - {"profile", "json", *kept}
        _effects.refuse(elsewhere, "counts only together with --cluster; add it, or leave these out")
    _effects.check_step(args)
    plan = files.read_plan(args.plan)
    profile, cluster, runtime = made_for(plan, args if args.cluster else made_by(plan), args.profile)
    return profile, cluster, simulate(profile, cluster, plan, runtime=runtime)


def made_for(plan: Plan, settings: argparse.Namespace, asked: str | None) -> tuple[Profile, Cluster, Runtime]:
    """What `settings`, such as those of `made_by`, say that a plan is for; of the profile `asked`, if any."""
    from simulator.cli import _started_run

    if getattr(settings, "launch", None) or getattr(settings, "config", None):
        run = _started_run.planned(settings).simulated
        return _options.profile_on(asked, settings.cluster) if asked else run.profile, run.cluster, run.runtime
    profile = _options.profile_on(profile_named(plan, asked), settings.cluster, **_options.of_card(settings))
    return (
        profile,
        _options.read_cluster(settings, plan.synchronisation.collective),
        _options.read_runtime(settings, profile),
    )


def profile_named(plan: Plan, asked: str | None) -> str:
    """The profile asked for, else that of the command that made the plan; its model may have several profiles."""
    named: str | None = asked or (made_by(plan).profile if says_how_made(plan) else None)
    if not named:
        raise InputError(f"profile: the plan, of {plan.model}, does not record of which it was made; say --profile")
    return named


def profile_of(plan: Plan, asked: str | None) -> Profile:
    """The profile asked for, else that of the command that made the plan; of a card on the GPU that it takes by itself,
    which is enough to know sizes."""
    of_card = _options.of_card(made_by(plan)) if says_how_made(plan) else {}
    return _options.profile_on(profile_named(plan, asked), None, **of_card)


def write_plan(plan: Plan, path: str, args: argparse.Namespace) -> None:
    """Write a plan that records the command line."""
    files.write_plan(replace(plan, command=shlex.join(["shardscope", *args.argv])), path)


def made_by(plan: Plan, remedy: str = "say --cluster and --profile") -> argparse.Namespace:
    """The arguments of the command that made the plan."""
    from simulator import cli

    if not says_how_made(plan):
        raise InputError(f"command: the plan does not record the command that made it; {remedy}")
    return cli.parse(shlex.split(plan.command)[1:])


def says_how_made(plan: Plan) -> bool:
    """Whether the plan records the command that made it."""
    return len(shlex.split(plan.command)) > 1
