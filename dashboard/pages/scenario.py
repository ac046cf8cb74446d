"""Scenario: a job over membership changes; throughput over time and the cost of each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, dcc, html, no_update

from dashboard.figures.scenario import throughput
from dashboard.figures.style import message
from dashboard.frame.cards import LIVE, card, choice, column, graph, page, plain_table, switch, table, tiles
from dashboard.frame.panels import keep_in_address
from dashboard.frame.shell import Page
from dashboard.state.scenarios import ScenarioResults, SimulatedScenario
from dashboard.state.store import Store
from dashboard.words.kpis import Kpi, difference
from simulator.elastic.job_account import incident_rows
from simulator.elastic.scenario import POLICIES
from simulator.errors import ShardscopeError
from simulator.units import format_bytes, format_duration, format_time

COLUMNS: tuple[tuple[dict[str, Any], Callable[[Mapping[str, Any]], Any]], ...] = (
    (column("at", "at", 118), lambda row: format_duration(row["at_s"])),
    (column("event", "event", 190, wrapText=True, autoHeight=True), lambda row: row["event"]),
    (column("policy", "done by", 118), lambda row: row["policy"]),
    (column("lost_s", "lost (s)", 85, decimals=1), lambda row: row["lost_s"]),
    (column("again", "samples again", 140, decimals=0), lambda row: row["lost_samples"] + row["repeated_samples"]),
    (column("moved", "moved", 92), lambda row: format_bytes(row["moved_bytes"]) if row["moved_bytes"] else ""),
    (column("devices", "devices", 98, decimals=0), lambda row: row["devices"]),
    (column("rate", "samples/s", 114, decimals=1), lambda row: row["samples_per_s"]),
    (column("parts", "of which", 220, flex=1, minWidth=220, wrapText=True, autoHeight=True), lambda row: row["parts"]),
)
"""Of the table of incidents behind their numbers, and what each shows of one."""


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    results = ScenarioResults(store)
    keep_in_address(app, Input("scenario", "value"), Input("policy", "value"), Input("incident", "data"))
    _add_account(app, results)

    return lambda now, baseline, own: _page(store, own)


def _add_account(app: Dash, results: ScenarioResults) -> None:
    @app.callback(
        Output("scenario-summary", "children"),
        Output("scenario-kpis", "children"),
        Output("throughput-graph", "figure"),
        Output("incidents", "rowData"),
        Output("policies", "children"),
        Output("incident-summary", "children"),
        Input("scenario", "value"),
        Input("policy", "value"),
        Input("incident", "data"),
    )
    def show(key: str | None, policy: str, incident: str | None) -> tuple[Any, ...]:
        if not key:
            missing = "There is no scenario: drop one here, such as examples/spot-cluster.yaml."
            return missing, [], message("no scenario"), [], None, None
        try:
            simulated = results.get(key)
        except ShardscopeError as error:
            alert = dmc.Alert(str(error), title="This scenario cannot be simulated here", color="red")
            return alert, [], message("no run"), [], None, None
        account = simulated.accounts[policy]
        rows = [
            {"id": str(i), "number": i + 1, **{shown["field"]: read(row) for shown, read in COLUMNS}}
            for i, row in enumerate(incident_rows(account))
        ]
        selected = next((i for i, row in enumerate(rows) if row["id"] == incident), None)
        figure = throughput(simulated.accounts, policy, selected)
        words = "" if selected is None else _words(rows[selected])
        summary = " ".join([_summary(simulated), *account.misfits])
        return summary, tiles(_kpis(simulated, policy)), figure, rows, _policies(simulated), words

    @app.callback(Output("incident", "data"), Input("incidents", "selectedRows"), prevent_initial_call=True)
    def choose(selected_rows: list[dict[str, Any]] | None) -> Any:
        return selected_rows[0]["id"] if selected_rows else no_update


def _page(store: Store, own: Mapping[str, str]) -> Any:
    known, policy = store.scenarios, own.get("policy", "")
    which = choice("scenario", "Scenario", known.options(), known.shown(own.get("scenario")), 220)
    how = switch("policy", "Policy", list(POLICIES), policy if policy in POLICIES else POLICIES[0])
    figure = graph("throughput-graph", 380, "Samples per second over time, with the events of the table below")
    selected = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}
    columns = [column("number", "#", 54), *(shown for shown, _ in COLUMNS)]
    incidents = table("incidents", columns, None, "id", rowSelection=selected)
    parts = [
        dcc.Store(id="incident", data=own.get("incident")),
        html.Div(id="scenario-summary", className="detail", **LIVE),
        html.Div(id="scenario-kpis", className="kpis"),
        card("throughput", "Throughput and devices over time (numbers: events below)",
             [figure, html.Div(id="incident-summary", className="detail", **LIVE)], controls=[how]),
        card("incidents-card", "What each event cost (click or space: mark it above)", [incidents], formats=()),
        card("policies-card", "Policies side by side", [html.Div(id="policies")], formats=()),
    ]  # fmt: skip
    return page("Scenario: membership changes", parts, which, ["scenario", "policy", "incident"])


def _summary(simulated: SimulatedScenario) -> str:
    scenario = simulated.scenario
    every = ", no checkpoints"
    if scenario.checkpoint_every:
        every = f", a checkpoint every {format_duration(scenario.checkpoint_every_s)}"
    return (
        f"{simulated.profile.model} on up to {simulated.cluster.workers} devices of {simulated.cluster.name}, strategy "
        f"{scenario.strategy}, for {format_duration(scenario.duration_s)}{every}. "
        f"Changes are those against the other policy. {scenario.notes}"
    )


def _kpis(simulated: SimulatedScenario, policy: str) -> list[Kpi]:
    """Totals of the policy, each with its difference to the other."""
    account = simulated.accounts[policy]
    name, other = next((name, compared) for name, compared in simulated.accounts.items() if name != policy)
    again = account.lost_samples + account.repeated_samples
    cost = f"${account.dollars_per_million:,.2f}" if account.dollars and account.samples else "no prices"

    def kpi(title: str, value: str, present: float, baseline: float, *, more: bool = False) -> Kpi:
        change, tone = difference(present, baseline, more=more)
        return Kpi(label=title, value=value, hint=f"against policy {name}", change=change, tone=tone)

    return [
        kpi("Samples trained", f"{account.samples:,}", float(account.samples), float(other.samples), more=True),
        kpi("Mean throughput", f"{account.samples_per_s:,.1f} /s", account.samples_per_s, other.samples_per_s,
            more=True),
        kpi("Lost to events", format_duration(account.lost_s), account.lost_s, other.lost_s),
        kpi("Checkpoints", format_duration(account.spent_s("checkpoint")), account.spent_s("checkpoint"),
            other.spent_s("checkpoint")),
        kpi("Samples again", f"{again:,}", float(again), float(other.lost_samples + other.repeated_samples)),
        kpi("Per million samples", cost, account.dollars_per_million, other.dollars_per_million),
    ]  # fmt: skip


def _words(row: Mapping[str, Any]) -> str:
    """One event in a sentence or two."""
    parts = f": {row['parts']}" if row["parts"] else ""
    return (
        f"{row['number']}. After {row['at']}, {row['event']} ({row['policy']}). {format_time(row['lost_s'])} lost"
        f"{parts}. "
        f"From then on {row['devices']} devices and {row['rate']:,.1f} samples/s."
    )


def _policies(simulated: SimulatedScenario) -> Any:
    rows = {name: account.totals for name, account in simulated.accounts.items()}
    titles = ("policy", *next(iter(rows.values())))
    return plain_table(titles, [[name, *totals.values()] for name, totals in rows.items()])
