"""Explore: from the controls to the step, its numbers and what to try next."""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from dashboard.frame.clientside import effect
from dashboard.frame.controls import CONTROLS, SLIDERS, cluster_options, remarks
from dashboard.frame.shell import toast
from dashboard.frame.upload_field import on_upload
from dashboard.pages._explore_words import advice_line, badge, baseline_name, kpi_row, offered, verdict
from dashboard.state import uploads
from dashboard.state.advice import advise
from dashboard.state.configuration import Configuration, from_values
from dashboard.state.store import Outcome, Store

_PLAIN = [control for control in CONTROLS if control.field not in SLIDERS]


def add(app: Dash, store: Store) -> None:
    """Register them all."""
    _add_refresh(app, store)
    _add_upload(app, store)
    _add_moves(app, store)


def _add_refresh(app: Dash, store: Store) -> None:
    @app.callback(
        output={
            "query": Output("configuration", "data"),
            "address": Output("address", "data"),
            "shown": Output("shown", "data"),
            "kpis": Output("kpis", "children"),
            "badge": Output("badge", "children"),
            "verdict": Output("verdict", "children"),
            "baseline_name": Output("baseline-name", "children"),
            "layers": Output("find-layer", "data"),
            "disabled": [Output(control.id, "disabled") for control in CONTROLS],
            "descriptions": [Output(control.id, "description") for control in _PLAIN],
            "slider_remarks": [Output(f"c-{field.replace('_', '-')}-remark", "children") for field in SLIDERS],
            "remarks": Output("shown-remarks", "data"),
            "toasts": Output("toasts", "sendNotifications", allow_duplicate=True),
        },
        inputs={
            "values": [Input(control.id, control.holds) for control in CONTROLS],
            "baseline": Input("baseline", "data"),
            "before": State("shown-remarks", "data"),
        },
        prevent_initial_call="initial_duplicate",
    )
    def refresh(values: list[Any], baseline: str | None, before: dict[str, Any] | None) -> dict[str, Any]:
        now, problems = _from_controls(store, values)
        outcome = store.outcome(now)
        pinned = store.outcome(store.read(baseline)[0]) if baseline else None
        shown_remarks = {
            "profile": now.profile,
            "remarks": {name: [r.text, r.disabled] for name, r in remarks(outcome).items()},
        }
        return {
            **_changed_remarks(shown_remarks, before or {}, outcome),
            "remarks": shown_remarks,
            "query": now.query(),
            "address": {"query": now.query(), "base": baseline or ""},
            "shown": {"query": now.query() if outcome.run else None, "message": "no timeline: there is no run to show"},
            "kpis": kpi_row(outcome, pinned),
            "badge": badge(outcome),
            "verdict": verdict(outcome),
            "baseline_name": baseline_name(pinned, outcome),
            "toasts": [toast("Changed", problem, "yellow") for problem in problems],
        }

    effect(app, "timeline", Input("shown", "data"))
    for name in ("critical", "fit"):
        effect(app, name, Input(name, "n_clicks"))


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
        Output("advice", "children"),
        Output("moves", "data"),
        Input("drawn", "data"),  # not before the figures, which would have to wait for a dozen simulations
        prevent_initial_call=True,
    )
    def suggest(query: str | None) -> tuple[Any, list[str]]:
        if query is None:
            raise PreventUpdate
        outcome = store.outcome(store.read(query)[0])
        advice = advise(store, outcome)
        shown = offered(advice, outcome)
        return advice_line(advice, outcome, shown), [option.move.configuration.query() for option in shown]

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
