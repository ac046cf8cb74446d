"""Explore: the strategies beside each other, simulated behind the page, and the advice that comes out of it."""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update
from dash.exceptions import PreventUpdate

from dashboard.frame.clientside import effect
from dashboard.pages._explore_words import advice_line, offered
from dashboard.state.advice import advise, moves, too_large
from dashboard.state.alternatives import alternatives
from dashboard.state.configuration import Configuration
from dashboard.state.inventory import label
from dashboard.state.simulating import Glance
from dashboard.state.store import Store
from simulator.units import format_bytes, format_time


def add(app: Dash, store: Store) -> None:
    """Register the callbacks of the strip and of the advice."""

    @app.callback(
        Output("strategies", "children"),
        Output("strategies-ready", "data"),
        Output("advice", "children"),
        Output("moves", "data"),
        Output("strategies-poll", "disabled"),
        Input("drawn-above", "data"),  # not before the figures above it
        Input("strategies-poll", "n_intervals"),
        State("strategies-ready", "data"),
        State("tab", "data"),
        prevent_initial_call=True,
    )
    def compare(query: str | None, polls: int | None, before: list[str] | None, tab: str) -> tuple[Any, ...]:
        if query is None:
            raise PreventUpdate
        now = store.resolved(store.read(query)[0])
        outcome = store.at_hand(now)
        options = alternatives(now, outcome.profile)
        if outcome.run is None and outcome.cluster is None and not outcome.took_s:
            return None, [query], None, no_update, True  # it was cancelled
        tried = [] if too_large(outcome) else [move.configuration for move in moves(outcome)]
        waiting = store.desk.want([*options, *tried], tab)
        ready = [query, *(option.strategy for option in options if store.desk.glance(option) is not None)]
        if ready == before and waiting and ctx.triggered_id == "strategies-poll":
            raise PreventUpdate
        strip = strategies_table([(option, store.desk.glance(option)) for option in options])
        if waiting:
            later = html.Div("Trying single changes …", className="figure-note")
            return strip, ready, later if ctx.triggered_id != "strategies-poll" else no_update, no_update, False
        advice = advise(store, outcome)
        shown = offered(advice, outcome)
        return strip, ready, advice_line(advice, outcome, shown), [o.move.configuration.query() for o in shown], True

    @app.callback(
        Output("load", "data", allow_duplicate=True),
        Input({"type": "switch", "query": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def switch(clicks: list[int | None]) -> Any:
        return ctx.triggered_id["query"] if any(clicks) else no_update

    effect(app, "strategies", Input("strategies-ready", "data"))


def strategies_table(rows: list[tuple[Configuration, Glance | None]]) -> Any:
    """One row per strategy, the shown one first; its name switches to it."""
    known = [glance.step_s for _, glance in rows if glance is not None and glance.ran]
    titles = ("strategy", "step", "moved", "between nodes", "max / mean", "peak memory", "limited by")
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in titles]))
    body = [_row(i, now, glance, min(known, default=0.0)) for i, (now, glance) in enumerate(rows)]
    return html.Table([head, html.Tbody(body)], className="plain-table strategies-table")


def _row(number: int, now: Configuration, glance: Glance | None, best_s: float) -> Any:
    name = (
        html.Strong(f"plan {label(now.plan)}" if now.plan else now.strategy)
        if number == 0
        else html.Button(
            now.strategy, id={"type": "switch", "query": now.query()}, className="link", title=f"Show {now.strategy}"
        )
    )
    shown = "shown" if number == 0 else ""
    if glance is None:
        waiting = html.Td("simulated in the background …", colSpan=6, className="figure-note")
        return html.Tr([html.Th(name, scope="row"), waiting], className=shown)
    if not glance.ran:
        why = html.Td(glance.reason, colSpan=6, className="figure-note")
        return html.Tr([html.Th(name, scope="row"), why], className=shown)
    step: list[Any] = [(html.Strong if glance.step_s == best_s else html.Span)(format_time(glance.step_s))]
    low, high = map(format_time, glance.step_band_s or (0.0, 0.0))
    if low != high:
        step.append(html.Span(f" {low} to {high}", className="figure-note"))
    if glance.microbatches > 1:
        step.append(html.Span(f" in {glance.microbatches} micro-batches", className="figure-note"))
    memory = format_bytes(glance.peak_memory_bytes)
    of = f" of {format_bytes(glance.memory_bytes)}" if glance.memory_bytes else ""
    cells = (
        step, format_bytes(glance.total_bytes), format_bytes(glance.between_bytes), f"{glance.load_balance_ratio:.2f}",
        html.Span(memory + of, className="" if glance.fits else "bad"), glance.bottleneck,
    )  # fmt: skip
    return html.Tr([html.Th(name, scope="row"), *(html.Td(cell) for cell in cells)], className=shown)
