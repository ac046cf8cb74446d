"""Serve the dashboard: timeline, load balance, communication and memory of simulated steps.

It shows the profiles that come with Shardscope and those given here, and listens on this machine only unless
--host says otherwise; then it asks for a token, which ends the address that it prints.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from simulator import files
from simulator.errors import InputError, require
from simulator.network import catalogue
from simulator.one_line_parser import option, whole

if TYPE_CHECKING:
    from dashboard.state.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "profiles PROFILE", "profile files, model cards or names to show; the first opens", nargs="*")
    option(parser, "--plan FILE", "a plan of the first profile, to open beside its execution")
    option(parser, "--execution FILE", "a run of --plan as it went (.npz, of `execute`): opens Compare")
    option(parser, "--cluster C", "the preset that --plan is simulated on (default dgx-a100)")
    text = "a validation.json, or the folder of `shardscope validate`, which also holds single tasks"
    option(parser, "--validation PATH", text, Path)
    option(parser, "--host HOST", "address to listen on (default: this machine only)", default="127.0.0.1")
    option(parser, "--port PORT", "port to listen on (default 8050; 0 takes a free one)", whole, default=8050)


def run(args: argparse.Namespace) -> None:
    from dashboard.app import serve
    from dashboard.state.scenarios import shipped_scenarios
    from dashboard.state.store import Store, bundled, given_cards, opened_name
    from dashboard.state.validations import at_hand

    require(0 <= args.port <= 65535, "port", args.port, "it is 0 to 65535")
    _check_together(args)
    validations = at_hand(args.validation)
    store = Store(
        bundled(args.profiles), validations=validations, scenarios=shipped_scenarios(),
        cards=given_cards(args.profiles), first=opened_name(args.profiles[0]) if args.profiles else "",
    )  # fmt: skip
    serve(store, args.host, args.port, path=_first_page(store, args))


def _check_together(args: argparse.Namespace) -> None:
    """Raise InputError where a plan, its execution or what they belong to is missing."""
    if args.execution and not args.plan:
        raise InputError("--execution: it opens beside the plan that it ran; add --plan FILE")
    if args.plan and not args.execution:
        raise InputError("--plan: it opens beside its execution; add --execution FILE, of `shardscope execute`")
    if args.plan and not args.profiles:
        raise InputError("--plan: of which profile? name that first: dashboard PROFILE --plan FILE --execution FILE")
    if args.cluster and not args.plan:
        raise InputError("--cluster: it counts only for --plan; leave it out, the page lets you choose one")


def _first_page(store: Store, args: argparse.Namespace) -> str:
    """The page to begin with: the execution beside the simulation of its plan, where both are named."""
    from dashboard.state.configuration import Configuration
    from traces.results.executions import read_execution

    if not args.plan:
        return "/"
    plan = files.read_plan(args.plan)
    configuration = Configuration(
        profile=store.default().profile,
        cluster=catalogue.read_preset(args.cluster or "dgx-a100").name,
        strategy="pipeline",
        devices=1 + max(max(sharding.devices) for sharding in plan.placements.values()),
        plan=store.plans.put(args.plan, plan),
    )
    execution = store.executions.put(args.execution, read_execution(args.execution))
    outcome, compared = store.actual(configuration, execution)
    if compared is None:
        raise InputError(f"execution {args.execution}: {outcome.reason}")
    return f"/compare?{configuration.query()}&{urlencode({'against': execution}, safe='@')}"
