"""Compare: two runs on one time axis, and everything that differs: a baseline's and the present one's simulation,
or the simulation and an actual run of one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html

from dashboard.figures.devices import breakdown
from dashboard.frame.cards import (
    aria,
    beside,
    card,
    choice,
    drawing,
    graph,
    legend,
    marked,
    page,
    plain_table,
    scrolled,
)
from dashboard.frame.panels import effect, keep_in_address
from dashboard.frame.shell import Page
from dashboard.pages._validate_words import causes
from dashboard.state.configuration import Configuration
from dashboard.state.inventory import label
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from dashboard.words.comparison import (
    Change,
    ComparedQuantity,
    device_changes,
    device_time,
    measured,
    moved_layers,
    results,
    settings,
)
from simulator.errors import UnknownNameError
from simulator.units import format_time
from traces.results.executions import Execution
from traces.results.timeline_comparison import Comparison

BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs: its name, its outcome, and what the timeline's address adds to its query."""

    name: str
    outcome: Outcome
    suffix: str = ""

    @property
    def title(self) -> str:
        """What made the plan, and the machine."""
        now = self.outcome.configuration
        return f"{now.planner} on {now.machine}"


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    effect(app, "pair", Input("pair", "data"))
    keep_in_address(app, Input("against", "value"))

    @app.callback(
        Output("compared", "children"),
        Input("against", "value"),
        State("address", "data"),
        State("base", "data"),
        prevent_initial_call=True,
    )
    def show(against: str, address: Mapping[str, str], base: str) -> Any:
        return _compared(store, store.read(address["query"])[0], store.read(base)[0], against)

    return lambda now, baseline, own: _page(store, now, baseline, own)


def _page(store: Store, now: Configuration, baseline: Configuration | None, own: Mapping[str, str]) -> Any:
    options = [{"value": BASELINE, "label": "the baseline, simulated"}, *store.executions.options("actual run: ")]
    named = own.get("against", BASELINE)
    against = named if named in [option["value"] for option in options] else BASELINE
    gone = "" if against == named else f"The run {label(named)} is no longer kept; open its file again."
    base = baseline or replace(now, strategy="data", microbatches=None)
    unpinned = "" if baseline else "No baseline is pinned: this is data parallelism. Pin another one on Explore."
    parts = [
        dcc.Store(id="base", data=base.query()),
        html.Div(gone or unpinned, className="figure-note"),
        html.Div(_compared(store, now, base, against), id="compared"),
    ]
    return page("Compare", parts, choice("against", "Now against", options, against, 260), ["against"])


def _compared(store: Store, now: Configuration, base: Configuration, against: str) -> Any:
    present = store.outcome(now)
    if against == BASELINE:
        before, after = Side(name="Baseline", outcome=store.outcome(base)), Side(name="Now", outcome=present)
        return _sides(before, after, None)
    try:
        outcome, compared = store.actual(now, against)
    except UnknownNameError as error:
        return dmc.Alert(str(error), title="No such run", color="red", variant="light")
    actual = Side(name="Actual", outcome=outcome, suffix=f"&actual={against}")
    more = None if compared is None else _task_by_task(compared, store.executions.get(against))
    return _sides(Side(name="Predicted", outcome=present), actual, more)


def _sides(before: Side, after: Side, more: Any) -> Any:
    """The whole comparison; `more`: the two task by task."""
    both = (before, after)
    shown = [
        {"query": side.outcome.configuration.query() + side.suffix if side.outcome.run else None,
         "message": side.outcome.undrawn}
        for side in both
    ]  # fmt: skip
    names = (before.name.lower(), after.name.lower())
    if any(side.outcome.report is None for side in both):
        return dmc.Stack([
            dcc.Store(id="pair", data=shown), _settings(before, after),
            *(_partition(i, side) for i, side in enumerate(both)), _timelines(both),
        ], gap="sm")  # fmt: skip
    rows = (results if more is None else measured)(before.outcome, after.outcome)
    shares = [(side.name, side.outcome.shares.total) for side in both if side.outcome.shares]
    split = graph("both-split-graph", 200, "Device time by use", breakdown(shares))
    uses = _table(device_time(before.outcome, after.outcome), names, "device time")
    return dmc.Stack([
        dcc.Store(id="pair", data=shown),
        more if more is not None else _settings(before, after),
        beside([
            card("results", "Results", [_table(rows, names, "quantity")], formats=()),
            card("both-split", "Where the step goes", [split, uses]),
        ]),
        _timelines(both),
        *([] if more is not None else [_moved(before.outcome, after.outcome), _devices(before.outcome, after.outcome)]),
        *([] if more is not None else [_partition(i, side) for i, side in enumerate(both)]),
    ], gap="sm")  # fmt: skip


def _moved(before: Outcome, after: Outcome) -> Any:
    sentence, rows = moved_layers(before, after)
    table = plain_table(("layers", "baseline", "now"), rows) if rows else None
    body = [
        html.P(sentence, className="partition-sentence"),
        html.Div(table, **scrolled("Layers that moved", "tall-table")),
    ]
    return card("moved", "Layers that moved", body, formats=())


def _devices(before: Outcome, after: Outcome) -> Any:
    """Before and after of each device; nothing where the two have not as many."""
    cells = [[name, *map(_change, changes)] for name, changes in device_changes(before, after)]
    table = plain_table(("device", "computes", "sends", "peak memory"), cells)
    shown = html.Div(table, **scrolled("By device", "tall-table"))
    missing = html.Div("not on as many devices", className="figure-note")
    return card("devices-compared", "By device", [shown if cells else missing], formats=())


def _change(change: Change) -> Any:
    before, after, words, tone = change
    return [f"{before} → {after} ", html.Span(words, className=f"kpi-change {tone}")]


def _settings(before: Side, after: Side) -> Any:
    """The controls that differ, as many beside each other as there is room for."""
    changed = settings(before.outcome.configuration, after.outcome.configuration)
    pairs = [
        html.Div([
            html.Div(row.name, className="kpi-label"),
            html.Div([row.before, " → ", html.Strong(row.after)], className="partition-sentence"),
        ])
        for row in changed
    ]  # fmt: skip
    body = html.Div(pairs, className="partition-figures") if pairs else html.Div("none", className="figure-note")
    return card("settings", "Changed controls", [body], formats=())


def _task_by_task(compared: Comparison, execution: Execution) -> Any:
    low, high = (format_time(pick(execution.steps_s)) for pick in (min, max))
    count = len(execution.steps_s)
    summary = (
        f"Predicted {format_time(compared.predicted.step_s)}, actual {format_time(compared.actual.step_s)}: "
        f"{compared.error:+.1%}. The timeline is that of the median of {count} steps ({low} to {high})."
    )
    body = dmc.Stack([html.Div(summary, className="detail"), *causes(compared)], gap="md")
    return card("tasks-compared", "Task by task", [body], formats=())


def _timelines(both: Sequence[Side]) -> Any:
    each = [_timeline(i, side) for i, side in enumerate(both)]
    return card("pair-card", "Timelines on one axis", each, controls=[legend()], formats=())


def _timeline(number: int, side: Side) -> Any:
    said = aria(f"Timeline of {side.name.lower()}; W, A, S, D move both timelines") | marked(group="pair")
    return html.Div([
        html.H3(f"{side.name}: {side.title}", className="card-title"),
        html.Div(id=f"timeline-{number}", className="timeline", tabIndex=0, role="application", **said),
    ])  # fmt: skip


def _partition(number: int, side: Side) -> Any:
    outcome, name = side.outcome, side.name.lower()
    if outcome.run is None or outcome.cluster is None:
        title = f"{side.name} cannot run" if outcome.report is None else f"{side.name} is counted, not drawn"
        return dmc.Alert(outcome.undrawn, title=title, color="gray" if outcome.report else "red", variant="light")
    return card(f"partition-{number}", f"Partition, {name}", [drawing(f"Partition of {name}", f"partition-{number}")])


def _table(rows: Sequence[ComparedQuantity], names: tuple[str, str], title: str) -> Any:
    if not rows:
        return html.Div("no shares of one of the two: it has no tasks at hand", className="figure-note")
    changes = any(row.change for row in rows)
    titles = (title, *names, *(["change"] if changes else []))
    return plain_table(titles, [
        [row.name, row.before, row.after, *([html.Span(row.change, className=f"kpi-change {row.tone}")] * changes)]
        for row in rows
    ])  # fmt: skip
