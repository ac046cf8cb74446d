"""Explore: from the controls to the step, its numbers and what to try next."""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from dashboard.frame.clientside import effect
from dashboard.frame.controls import BY_STRATEGY, CONTROLS, SLIDERS, cluster_options, plan_options, remarks
from dashboard.frame.shell import toast
from dashboard.frame.upload_field import on_upload
from dashboard.pages._explore_words import badge, baseline_name, busy_badge, chips, kpi_row, verdict
from dashboard.state import uploads
from dashboard.state.configuration import Configuration, from_values
from dashboard.state.inventory import label
from dashboard.state.simulating import Outcome, searches
from dashboard.state.store import Store
from dashboard.state.workers import Simulation
from simulator.units import format_time
from traces.results.validations import Validation

MOST_REMEMBERED = 12
PATIENCE_S, MORE_PATIENCE_S = 0.4, 1.5
"""Seconds that the first answer waits for a search before it says so, and that every later one and that of a quick
strategy wait."""

_PLAIN = [control for control in CONTROLS if control.field not in SLIDERS]


def add(app: Dash, store: Store) -> None:
    """Register them all: controls, uploads, baseline, moves."""
    _add_refresh(app, store)
    _add_upload(app, store)
    _add_plan_upload(app, store)
    _add_history(app, store)
    _add_moves(app, store)


def _add_refresh(app: Dash, store: Store) -> None:
    values = [Input(control.id, control.holds) for control in CONTROLS]

    @app.callback(
        output={
            "query": Output("configuration", "data"),
            "address": Output("address", "data"),
            "shown": Output("shown", "data"),
            "kpis": Output("kpis", "children"),
            "badge": Output("badge", "children"),
            "verdict": Output("verdict", "children"),
            "chips": Output("chips", "children"),
            "baseline_name": Output("baseline-name", "children"),
            "layers": Output("find-layer", "data"),
            "disabled": [Output(control.id, "disabled") for control in CONTROLS],
            "descriptions": [Output(control.id, "description") for control in _PLAIN],
            "slider_remarks": [Output(f"c-{field.replace('_', '-')}-remark", "children") for field in SLIDERS],
            "remarks": Output("shown-remarks", "data"),
            "toasts": Output("toasts", "sendNotifications", allow_duplicate=True),
            "answer": Output("answer", "data"),
        },
        inputs={
            "values": values,
            "baseline": Input("baseline", "data"),
            "again": Input("again", "data"),
            "before": State("shown-remarks", "data"),
            "tab": State("tab", "data"),
        },
        prevent_initial_call="initial_duplicate",
    )
    def refresh(
        values: list[Any], baseline: str | None, again: int | None, before: dict[str, Any] | None, tab: str
    ) -> dict[str, Any]:
        now, problems = _from_controls(store, values)
        now = store.resolved(store.read(now.query())[0])  # with the digits that a link has
        base = store.resolved(store.read(baseline)[0]) if baseline else None
        toasts = [toast("Changed", problem, "yellow") for problem in problems]
        address = {"query": now.query(), "base": baseline or ""}
        if base:
            store.desk.ask(base, tab, 0.0, beside=now)  # so that both are simulated at the same time
        first = ctx.triggered_id != "again" and searches(now.strategy)
        patience_s = PATIENCE_S if first else MORE_PATIENCE_S
        asked = store.desk.ask(now, tab, patience_s, beside=base)
        if isinstance(asked, Simulation):
            return _pending(asked.words, address, toasts)
        pinned = store.desk.ask(base, tab, patience_s, beside=now) if base else None
        shown_remarks = {
            "profile": now.profile,
            "remarks": {
                name: [r.description(f"c-{name.replace('_', '-')}"), r.disabled] for name, r in remarks(asked).items()
            },
        }
        waits = isinstance(pinned, Simulation)
        before_pinned = None if isinstance(pinned, Simulation) else pinned
        reason = "no timeline: there is no run to show"
        return {
            **_changed_remarks(shown_remarks, before or {}, asked),
            "remarks": shown_remarks,
            "query": now.query(),
            "address": address,
            "shown": {"query": now.query() if asked.run else None, "message": reason, "asked": now.query()},
            "kpis": kpi_row(asked, before_pinned),
            "badge": badge(asked),
            "verdict": verdict(asked),
            "chips": chips(asked, _validation(store)),
            "baseline_name": "simulating the baseline …" if waits else baseline_name(before_pinned, asked),
            "toasts": toasts,
            "answer": {"pending": False, "ran": asked.run is not None, "again": waits},
        }

    @app.callback(
        Output("load", "data", allow_duplicate=True),
        Input("cancel", "n_clicks"),
        State("tab", "data"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def cancel(clicks: int | None, tab: str, shown: str | None) -> Any:
        """Back to what is shown; where nothing is shown yet, the page says that the search was cancelled."""
        store.desk.cancel(tab)
        return shown if clicks and shown else no_update

    effect(app, "answered", Input("answer", "data"))
    effect(app, "tab", Input("tab", "data"))
    effect(app, "timeline", Input("shown", "data"))
    for name in ("critical", "fit"):
        effect(app, name, Input(name, "n_clicks"))


def _pending(words: str, address: dict[str, str], toasts: list[Any]) -> dict[str, Any]:
    """The answer while the outcome is being made: panels stay as they are, grey, and the badge says what goes on."""
    same = ("query", "shown", "kpis", "verdict", "chips", "baseline_name", "layers", "remarks")
    return {
        **dict.fromkeys(same, no_update),
        "disabled": [no_update] * len(CONTROLS),
        "descriptions": [no_update] * len(_PLAIN),
        "slider_remarks": [no_update] * len(SLIDERS),
        "address": address,
        "badge": busy_badge(words),
        "toasts": toasts or no_update,
        "answer": {"pending": True, "ran": False, "again": True},
    }


def _validation(store: Store) -> Validation | None:
    """The first validation at hand."""
    stored = next(iter(store.validations.everything().values()), None)
    return stored.validation if stored else None


def _add_upload(app: Dash, store: Store) -> None:
    """An uploaded cluster is added to the options and selected with all its devices."""

    def keep(file: bytes, name: str) -> tuple[Any, ...]:
        cluster = uploads.cluster(file, name)
        key = store.clusters.put(name, cluster)
        return cluster_options(store), key, cluster.workers, no_update

    outputs = (
        Output("c-cluster", "data"),
        Output("c-cluster", "value", allow_duplicate=True),
        Output("c-devices", "value", allow_duplicate=True),
        Output("toasts", "sendNotifications", allow_duplicate=True),
    )
    on_upload(app, "cluster-upload", outputs, keep, lambda error: [toast("Not a cluster", str(error))])


def _add_plan_upload(app: Dash, store: Store) -> None:
    """An uploaded plan is added to the options and shown, on as many devices as it names at least."""

    def keep(file: bytes, name: str) -> tuple[Any, ...]:
        key = store.plans.put(name, uploads.plan(file, name))
        return plan_options(store), key, no_update

    outputs = (
        Output("c-plan", "data"),
        Output("c-plan", "value", allow_duplicate=True),
        Output("toasts", "sendNotifications", allow_duplicate=True),
    )
    on_upload(app, "plan-upload", outputs, keep, lambda error: [toast("Not a plan", str(error))])

    @app.callback(
        Output("c-plan", "value", allow_duplicate=True),
        Input("c-strategy", "value"),
        State("load", "data"),
        State("c-plan", "value"),
        prevent_initial_call=True,
    )
    def leave_plan(strategy: str, loaded: str | None, plan: str) -> Any:
        """Who chooses a strategy wants its plan."""
        keeps = loaded is not None and store.read(loaded)[0].plan and store.read(loaded)[0].strategy == strategy
        return no_update if keeps or plan == BY_STRATEGY else BY_STRATEGY


def _add_history(app: Dash, store: Store) -> None:
    """The latest runs of this tab, which a click shows again."""

    @app.callback(
        Output("history", "data"),
        Output("history-runs", "children"),
        Input("configuration", "data"),
        State("history", "data"),
        prevent_initial_call=True,
    )
    def remember(query: str | None, before: list[list[str]] | None) -> tuple[Any, Any]:
        if query is None:
            return no_update, no_update
        outcome = store.at_hand(store.read(query)[0])
        now = outcome.configuration
        step = format_time(outcome.run.report.step_s) if outcome.run else "cannot run"
        who = f"plan {label(now.plan)}" if now.plan else now.strategy
        words = f"{label(now.profile)}, {who}, {now.devices} × {label(now.cluster)}: {step}"
        entries = [[query, words], *(entry for entry in before or [] if entry[0] != query)][:MOST_REMEMBERED]
        return entries, [_run_button(*entry) for entry in entries]

    effect(app, "rebase", Input("configuration", "data"), Input("baseline", "data"))


def _run_button(query: str, words: str) -> Any:
    more: dict[str, Any] = {"data-load": query}
    return html.Button(words, className="menu-item", **more)


def _add_moves(app: Dash, store: Store) -> None:
    """Pin, reset, advice and what a click on it does."""

    @app.callback(
        Output("baseline", "data", allow_duplicate=True),
        Input("pin", "n_clicks"),
        Input("unpin", "n_clicks"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def pin(pinned: int | None, unpinned: int | None, query: str) -> str | None:
        return query if ctx.triggered_id == "pin" else None

    @app.callback(
        Output("load", "data"),
        Input({"type": "apply", "index": ALL}, "n_clicks"),
        Input("reset", "n_clicks"),
        State("moves", "data"),
        prevent_initial_call=True,
    )
    def apply(clicks: list[int | None], reset: int | None, offered: list[str]) -> Any:
        if ctx.triggered_id == "reset" and reset:
            return store.default().query()
        return offered[ctx.triggered_id["index"]] if any(clicks) else no_update

    @app.callback(
        [Output(control.id, control.holds) for control in CONTROLS],
        Input("load", "data"),
        prevent_initial_call=True,
    )
    def load(query: str) -> list[Any]:
        now, _ = store.read(query)
        return [control.shown(getattr(now, control.field)) for control in CONTROLS]


def _changed_remarks(present: dict[str, Any], before: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The remarks that changed: setting dozens of properties to what they are costs a browser 100 ms."""

    def changed(field: str, part: int) -> Any:
        now, then = (state.get("remarks", {}).get(field, ["", False])[part] for state in (present, before))
        return no_update if before and now == then else now

    layers = [{"value": str(i), "label": layer.name} for i, layer in enumerate(outcome.profile.layers)]
    return {
        "layers": no_update if before.get("profile") == present["profile"] else layers,
        "disabled": [changed(control.field, 1) for control in CONTROLS],
        "descriptions": [changed(control.field, 0) for control in _PLAIN],
        "slider_remarks": [changed(field, 0) for field in SLIDERS],
    }


def _from_controls(store: Store, values: list[Any]) -> tuple[Configuration, list[str]]:
    values_read = {control.field: control.read(value) for control, value in zip(CONTROLS, values, strict=True)}
    return from_values(values_read, store.default())
