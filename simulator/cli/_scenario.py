"""What `scenario` prints: the plot, what each event cost and of what, and the policies side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulator.cli import _tables
from simulator.terminal import say
from simulator.units import format_bytes, format_duration, format_time

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.elastic.job_account import Account
    from simulator.elastic.scenario import Scenario
    from simulator.sweep.chart import Chart
    from simulator.workload import Profile


def print_accounts(
    scenario: Scenario, accounts: Mapping[str, Account], profile: Profile, cluster: Cluster, picture: Chart
) -> None:
    """The account of the first policy in full, the others in a row each."""
    from simulator.sweep.chart import chart_text

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
    _tables.print_table(_totals(accounts), ("samples", "checkpoints", "idle", "repeated"))
    say("repeated: samples computed again; no sample is left out, and none counts twice")


def _totals(accounts: Mapping[str, Account]) -> Any:
    columns = ("samples", "samples/s", "lost to events", "checkpoints", "idle", "repeated", "cost", "$ / M samples")
    table = _tables.new_table("policy", *columns)
    for name, account in accounts.items():
        table.add_row(name, *_figures(account))
    return table


def _figures(account: Account) -> Sequence[str]:
    dollars = account.dollars
    return (
        f"{account.samples:,}",
        f"{account.samples / account.duration_s:,.1f}",
        f"{format_duration(account.lost_s)} ({account.lost_s / account.duration_s:.2%})",
        format_duration(account.spent_s("checkpoint")),
        format_duration(account.spent_s("idle")),
        f"{account.repeated_samples + account.lost_samples:,}",
        f"${dollars:,.2f}" if dollars else "-",
        f"{dollars / account.samples * 1e6:,.2f}" if dollars and account.samples else "-",
    )
