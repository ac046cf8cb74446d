"""Explore: from the controls to the step, its numbers and what to try next."""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from dashboard.frame.clientside import effect
from dashboard.frame.controls import CONTROLS, SLIDERS, cluster_options, remarks
from dashboard.frame.shell import toast
from dashboard.pages._explore_words import advice_line, badge, baseline_name, kpi_row, offered, verdict
from dashboard.state import uploads
from dashboard.state.advice import advise
from dashboard.state.configuration import Configuration, from_values
from dashboard.state.store import Outcome, Store
from simulator.errors import InputError

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
            "told": Output("told", "data"),
            "toasts": Output("toasts", "sendNotifications", allow_duplicate=True),
        },
        inputs={
            "values": [Input(control.id, control.holds) for control in CONTROLS],
            "baseline": Input("baseline", "data"),
            "before": State("told", "data"),
        },
        prevent_initial_call="initial_duplicate",
    )
    def refresh(values: list[Any], baseline: str | None, before: dict[str, Any] | None) -> dict[str, Any]:
        now, problems = _from_controls(store, values)
        outcome = store.outcome(now)
        pinned = store.outcome(store.read(baseline)[0]) if baseline else None
        told = {"profile": now.profile, "remarks": {name: [r.text, r.disabled] for name, r in remarks(outcome).items()}}
        return {
            **_news(told, before or {}, outcome),
            "told": told,
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
    """A cluster file becomes a choice, and is chosen, with all its devices."""

    @app.callback(
        Output("c-cluster", "data"),
        Output("c-cluster", "value", allow_duplicate=True),
        Output("c-devices", "value", allow_duplicate=True),
        Output("toasts", "sendNotifications", allow_duplicate=True),
        Input("cluster-upload", "contents"),
        State("cluster-upload", "filename"),
        prevent_initial_call=True,
    )
    def upload(contents: str | None, filename: str | None) -> tuple[Any, ...]:
        if contents is None:
            return (no_update,) * 4
        name = filename or "cluster.yaml"
        try:
            found = uploads.cluster(uploads.content(contents), name)
        except InputError as error:
            return no_update, no_update, no_update, [toast("Not a cluster", str(error))]
        key = store.clusters.put(name, found)
        return cluster_options(store), key, found.workers, no_update


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
        return advice_line(advice, outcome, shown), [one.move.configuration.query() for one in shown]

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


def _news(told: dict[str, Any], before: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """What is new to say beside the controls; to set dozens of properties to what they are costs a browser 100 ms."""

    def changed(field: str, part: int) -> Any:
        now, then = (one.get("remarks", {}).get(field, ["", False])[part] for one in (told, before))
        return no_update if before and now == then else now

    layers = [{"value": str(i), "label": layer.name} for i, layer in enumerate(outcome.profile.layers)]
    return {
        "layers": no_update if before.get("profile") == told["profile"] else layers,
        "disabled": [changed(control.field, 1) for control in CONTROLS],
        "descriptions": [changed(control.field, 0) for control in _PLAIN],
        "slider_remarks": [changed(field, 0) for field in SLIDERS],
    }


def _from_controls(store: Store, values: list[Any]) -> tuple[Configuration, list[str]]:
    given = {control.field: control.read(value) for control, value in zip(CONTROLS, values, strict=True)}
    return from_values(given, store.default())
