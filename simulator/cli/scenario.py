"""Simulate a job over a scenario of membership changes: throughput, time lost and cost of each change.

    shardscope scenario examples/spot-cluster.yaml --output day.html

Devices join, leave, fail and slow down. The other policy is simulated too, for comparison.
`simulator/elastic/scenario.py` says what a scenario file holds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from simulator import files
from simulator.cli import _printing, _results, _tables
from simulator.network.catalogue import read_cluster, read_runtime
from simulator.one_line_parser import option
from simulator.sweep.chart import Chart, Series, chart_text
from simulator.terminal import say
from simulator.units import format_bytes, format_duration, format_time

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.elastic.job_account import Account
    from simulator.elastic.scenario import Scenario
    from simulator.workload import Profile


INTERVALS = 72


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "scenario SCENARIO.yaml", "what happens when; see examples/spot-cluster.yaml")
    option(parser, "--policy", "instead of the file's", choices=["live", "restart"])
    _results.add_output(parser, "write throughput over time (.html, .png) or what each event cost (.csv, .parquet)")
    option(parser, "--json", "print the account as JSON instead")


def run(args: argparse.Namespace) -> None:
    from partitioners._scenario_plans import ScenarioPlans
    from simulator.elastic.job import simulate_job
    from simulator.elastic.job_account import incident_rows
    from simulator.elastic.reconfiguration import read_overheads
    from simulator.elastic.scenario import POLICIES, read_scenario
    from simulator.language_models.training_stack import runtime_of

    _results.check_outputs(args.output)
    folder = Path(args.scenario).parent
    scenario = read_scenario(args.scenario)
    profile = files.read_profile(_beside(folder, scenario.profile))
    cluster = read_cluster(_beside(folder, scenario.cluster), devices=scenario.devices).with_speed(scenario.speed)
    overheads = read_overheads(folder / scenario.overheads)
    runtime = runtime_of(profile, read_runtime(_beside(folder, scenario.cluster)))
    plans = ScenarioPlans(scenario, profile, cluster, folder, runtime)
    policy = args.policy or scenario.policy
    accounts = {
        name: simulate_job(scenario, profile, cluster, overheads, plans, name, runtime)
        for name in (policy, *(other for other in POLICIES if other != policy))
    }
    picture = _chart(accounts, args.scenario)
    _results.write_outputs(args.output, incident_rows(accounts[policy]), picture)
    if args.json:
        others = {name: account.to_dict() for name, account in accounts.items() if name != policy}
        _printing.print_json({**accounts[policy].to_dict(), "other_policies": others})
    else:
        _print_accounts(scenario, accounts, profile, cluster, picture)


def _beside(folder: Path, source: str) -> str:
    """A file beside the scenario where there is one; else a name, or a path as it stands."""
    return str(folder / source) if (folder / source).is_file() else source


def _chart(accounts: dict[str, Account], title: str) -> Chart:
    series = []
    for name, account in accounts.items():
        edges_s, rates = account.throughput(INTERVALS)
        hours = edges_s[:-1] / 3600
        series.append(Series(name=name, x=tuple(hours.tolist()), y=tuple(rates.tolist())))
    return Chart(title=title, x="hours", y="samples_per_s", series=tuple(series))


def _print_accounts(
    scenario: Scenario, accounts: Mapping[str, Account], profile: Profile, cluster: Cluster, picture: Chart
) -> None:
    """The account of the first policy in full, the others in a row each."""
    policy, account = next(iter(accounts.items()))
    say(
        f"{profile.model} on {cluster.name}, up to {cluster.workers} devices, for "
        f"{format_duration(scenario.duration_s)} under policy {policy}",
    )
    print(chart_text(picture))
    columns = ("policy", "lost", "repeated", "moved", "devices", "samples/s")
    table = _tables.new_table("event", *columns)
    for incident in account.incidents:
        table.add_row(
            f"{format_duration(incident.at_s)} {incident.event}",
            incident.policy,
            format_time(incident.lost_s),
            str(incident.repeated_samples + incident.lost_samples),
            format_bytes(incident.moved_bytes),
            str(incident.devices),
            f"{incident.samples_per_s:,.1f}",
        )
    _tables.print_table(table, ("repeated", "moved"))
    for incident in account.incidents:
        if incident.parts_text:
            say(f"{format_duration(incident.at_s)}: {incident.parts_text}")
    say(*account.misfits)
    totals = _tables.new_table("policy", *account.totals)
    for name, each in accounts.items():
        totals.add_row(name, *each.totals.values())
    _tables.print_table(totals, ("samples", "checkpoints", "idle", "repeated"))
    say("repeated: samples computed again; no sample is left out, and none counts twice")
