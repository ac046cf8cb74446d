"""Explore: from the controls to the step, its numbers and what to try next."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dash import Dash, Input, Output, State, ctx, html, no_update
from flask import Flask, Response, request

from dashboard.frame.controls import BY_STRATEGY, CONTROLS, GONE
from dashboard.frame.panels import add_panel, as_html, effect, hung_up, toast
from dashboard.frame.remarks import Remark, remarks
from dashboard.frame.shell import read_address
from dashboard.pages._explore_strategies import best_key, ran, strategies_table, whole_answer
from dashboard.pages._explore_words import badge, baseline_name, chips, kpi_row, verdict
from dashboard.state.alternatives import glances_at_hand
from dashboard.state.caps import searches
from dashboard.state.configuration import FACTORS, Configuration, from_values
from dashboard.state.inventory import label
from dashboard.state.measures import sequence_length
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from dashboard.state.workers import Simulation
from dashboard.words.kpis import rate_words
from simulator.errors import UnknownNameError
from simulator.units import format_time
from traces.results.validations import Validation

PATIENCE_S, MORE_PATIENCE_S = 0.4, 1.5
"""Seconds that the first answer waits for a search before it says so, and that every later one and that of a quick
strategy wait."""


def add(app: Dash, store: Store) -> None:
    """Register them all: controls, baseline, moves."""
    _add_beginning(app.server, store)
    _add_step(app, store)
    _add_leave_plan(app, store)
    _add_moves(app, store)


def _add_beginning(server: Flask, store: Store) -> None:
    """The step of a link begins as its document is sent: the browser then reads scripts for most of a second."""

    @server.after_request
    def begin(response: Response) -> Response:
        sent = request.path == "/" and request.method == "GET" and response.status_code == 200
        if sent and store.desk.workers is not None:
            link = store, request.query_string.decode(), time.monotonic_ns()
            threading.Thread(target=_begin, args=link, daemon=True).start()
        return response


def _begin(store: Store, search: str, number: int) -> None:
    with suppress(UnknownNameError):
        now, baseline, _ = read_address(store, search)
        opened(store, _document(now), now, baseline, number=number)


def _document(now: Configuration) -> str:
    """The tab that waits for a configuration until its page is made."""
    return f"document {now.query()}"


def opened(
    store: Store, tab: str, now: Configuration, baseline: Configuration | None, number: int | None = None
) -> dict[str, Any]:
    """What a page shows as it opens, components by their ids; nothing where its step is not simulated yet.

    That goes on while the browser draws the page, which then asks for the step. number: of the request of a document.
    """
    if store.desk.workers is None:
        return {}
    shown, base = (each and store.resolved(store.read(each.query())[0]) for each in (now, baseline))
    assert shown is not None
    pinned = store.desk.ask(base, tab, 0.0, beside=shown, number=number) if base else None
    asked = store.desk.ask(shown, tab, 0.0, beside=base, number=number)
    if number is None:
        store.desk.leave(_document(now), time.monotonic_ns())  # whose thread may come later than this
    return _parts(store, asked, pinned) if isinstance(asked, Outcome) and asked.report else {}


def _parts(store: Store, outcome: Outcome, pinned: Outcome | Simulation | None) -> dict[str, Any]:
    """Numbers, sentence, strip and what else a step's answer says, components by their ids."""
    before = pinned if isinstance(pinned, Outcome) else None
    glances = glances_at_hand(store.desk, outcome) if outcome.report else {}
    return {
        "kpis": kpi_row(outcome, before),
        "verdict": verdict(outcome),
        "why": whole_answer(outcome, ran(glances)),
        **({"strategies": strategies_table(list(glances.items()))} if glances else {}),
        "chips": chips(outcome, _validation(store)),
        "baseline-name": "simulating the baseline …" if pinned is not before else baseline_name(before, outcome),
    }


def _add_step(app: Dash, store: Store) -> None:
    """The browser asks for the step of its controls by itself (assets/explore.js): one request and no callback.

    While a search goes on the answer is of its best plan so far; `best` tells one of these from the next. Numbers,
    sentence and the strip's first row come in one answer, so that they are of one plan at any moment.
    """

    def step(sent: Mapping[str, Any]) -> dict[str, Any]:
        """sent: values of CONTROLS in order, base (a query or nothing), tab, the tab's number of this request, again,
        showing (what it shows of a search and whether beside the baseline), profile (whose layers it has)."""
        now, problems = _from_controls(store, sent["values"])
        query = now.query()
        base = store.resolved(store.read(sent["base"])[0]) if sent.get("base") else None
        tab, number = str(sent["tab"])[:64], sent.get("number")
        answer = {
            "query": query,
            "address": {"query": query, "base": sent.get("base") or ""},
            "toasts": [toast("Changed", problem, "yellow") for problem in problems if not sent.get("again")],
        }
        if base:
            store.desk.ask(base, tab, 0.0, beside=now, number=number)  # so that both are simulated at the same time
        first = not sent.get("again") and searches(now.strategy)
        patience_s = PATIENCE_S if first else MORE_PATIENCE_S
        shows = bool(sent.get("showing"))
        asked = store.desk.ask(now, tab, patience_s, beside=base, number=number, showing=shows)
        busy = asked if isinstance(asked, Simulation) else None
        if busy and hung_up():  # a browser that kills a tab may not let it say that it leaves
            store.desk.leave(tab, number)
        outcome = asked.best if isinstance(asked, Simulation) else asked
        going_on = {"badge": as_html(html.Span(busy.words, className="badge yellow"))} if busy else {}
        if outcome is None:
            return {**answer, "pending": True, "again": True, "html": going_on}
        patience_s = 0.0 if busy else patience_s
        pinned = store.desk.ask(base, tab, patience_s, beside=now, number=number, showing=True) if base else None
        waits = isinstance(pinned, Simulation)
        best = best_key(outcome) if busy else ""
        showing = f"{best}{' alone' if waits else ''}"
        if best and showing == sent.get("showing"):
            return {**answer, "pending": True, "again": True, "ran": True, "showing": showing, "html": going_on}
        parts = {"badge": badge(outcome), **_parts(store, outcome, pinned)}
        layers = [{"value": str(i), "label": layer.name} for i, layer in enumerate(outcome.profile.layers)]
        return {
            **answer,
            "pending": busy is not None,
            "again": waits or busy is not None,
            "ran": outcome.report is not None,
            "undrawn": outcome.undrawn if outcome.counted else "",
            "best": best,
            "showing": showing,
            "html": {name: as_html(part) for name, part in parts.items()} | going_on,
            "controls": _controls(outcome),
            "profile": now.profile,
            "layers": None if sent.get("profile") == now.profile else layers,
            "words": _run_words(outcome),
        }

    add_panel(app.server, "step", step)
    values = [Input(control.id, control.holds) for control in CONTROLS]
    effect(app, "step", *values, Input("baseline", "data"), State("tab", "data"))

    def cancel(sent: Mapping[str, Any]) -> dict[str, Any]:
        """sent: values, tab and number, as of a step."""
        now, _ = _from_controls(store, sent["values"])
        store.desk.cancel(now, str(sent["tab"])[:64], sent.get("number"))
        return {}

    add_panel(app.server, "cancel", cancel)


def _controls(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """What the page sets of each control: whether it is there, whether it applies, its words (a slider's beside it)."""
    shown: dict[str, dict[str, Any]] = {}
    said = remarks(outcome)
    for control in CONTROLS:
        remark = said.get(control.field, Remark())
        slider = control.field in FACTORS
        words = {"remark": remark.text} if slider else {"description": remark.description(control.id)}
        style = {} if slider else {"style": GONE if remark.gone else {}}
        shown[control.id] = {"disabled": remark.disabled, **style, **words}
    return shown


def _run_words(outcome: Outcome) -> str:
    """A run in the list of recent ones."""
    now = outcome.configuration
    step = "cannot run"
    if report := outcome.report:
        tokens = sequence_length(outcome.profile)
        step = f"{format_time(report.step_s)}, {rate_words(report.samples_per_s * (tokens or 1))} "
        step += "tokens/s" if tokens else "samples/s"
    return f"{label(now.profile)}, {now.planner}, {now.machine}: {step}"


def _validation(store: Store) -> Validation | None:
    """The first validation at hand."""
    stored = next(iter(store.validations.everything().values()), None)
    return stored.validation if stored else None


def _add_leave_plan(app: Dash, store: Store) -> None:
    @app.callback(
        Output("c-plan", "value", allow_duplicate=True),
        Input("c-strategy", "value"),
        Input("c-profile", "value"),
        State("load", "data"),
        State("c-plan", "value"),
        prevent_initial_call=True,
    )
    def leave_plan(strategy: str, profile: str, loaded: str | None, plan: str) -> Any:
        """Who chooses a strategy wants its plan, and another model has none of this one's layers."""
        if plan == BY_STRATEGY:
            return no_update
        set_to = store.read(loaded)[0] if loaded is not None else None
        if set_to is not None and set_to.plan and (set_to.strategy, set_to.profile) == (strategy, profile):
            return no_update
        other = replace(store.default(), profile=profile)
        keeps = ctx.triggered_id == "c-profile" and store.suits(store.plans.get(plan), other)
        return no_update if keeps else BY_STRATEGY


def _add_moves(app: Dash, store: Store) -> None:
    """Reset, and whatever else sets the controls."""

    @app.callback(Output("load", "data"), Input("reset", "n_clicks"), prevent_initial_call=True)
    def reset(clicks: int | None) -> Any:
        return store.default().query() if clicks else no_update

    @app.callback(
        [Output(control.id, control.holds) for control in CONTROLS],
        Input("load", "data"),
        prevent_initial_call=True,
    )
    def load(query: str) -> list[Any]:
        now, _ = store.read(query)
        return [control.shown(getattr(now, control.field)) for control in CONTROLS]


def _from_controls(store: Store, values: list[Any]) -> tuple[Configuration, list[str]]:
    """The configuration of the values of CONTROLS, with the digits that a link has, and what was changed of it."""
    values_read = {control.field: control.read(value) for control, value in zip(CONTROLS, values, strict=True)}
    now, problems = from_values(values_read, store.default())
    return store.resolved(store.read(now.query())[0]), problems
