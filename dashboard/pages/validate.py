"""Validate: what was predicted beside what happened, and which runs and tasks the difference comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, html, no_update

from dashboard.figures.style import LINES, Figure
from dashboard.figures.validation import error_over, errors, predicted_against_actual, published_steps, shape_of
from dashboard.frame.cards import (
    LIVE,
    beside,
    card,
    choice,
    graph,
    page,
    plain_table,
    scrolled,
    switch,
    table,
    tiles,
)
from dashboard.frame.panels import keep_in_address
from dashboard.frame.shell import Page
from dashboard.pages._validate_words import columns, details, kpis, machine, rows
from dashboard.state.store import Store
from dashboard.state.validations import GROUPINGS, PublishedSet, Stored, grouped, published_sets
from simulator.errors import UnknownNameError
from traces.results.validations import ValidatedRun

_GRAPHS = ("scatter", "errors", "volume", "memory-error", "load")
_OVER = {"volume": "volume", "memory-error": "memory", "load": "load"}


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    _add_figures(app, store)
    _add_choice(app, store)
    keep_in_address(app, Input("validation", "value"), Input("validate-run", "value"), Input("validate-by", "value"))

    return lambda now, baseline, own: _page(store, own)


def _add_figures(app: Dash, store: Store) -> None:
    @app.callback(
        [Output(f"{name}-graph", "figure") for name in _GRAPHS],
        Input("validation", "value"),
        Input("validate-by", "value"),
        Input("validate-run", "value"),
    )
    def draw(key: str | None, by: str, run: str | None) -> list[Figure]:
        groups = grouped(_outcomes(store, key), by)
        over = [error_over(groups, _OVER[name], run) for name in _GRAPHS[2:]]
        return [predicted_against_actual(groups, run), errors(groups, run), *over]

    @app.callback(
        Output("validate-kpis", "children"),
        Output("validate-machine", "children"),
        Output("validate-rows", "rowData"),
        Output("validate-rows", "columnDefs"),
        Output("validate-run", "data"),
        Output("validate-run", "value"),
        Input("validation", "value"),
        State("validate-run", "value"),
    )
    def show(key: str | None, run: str | None) -> tuple[Any, ...]:
        stored = _stored(store, key)
        outcomes = _outcomes(store, key)
        if stored is None or not outcomes:
            missing = "No validation is stored: drop one here, or make one with `shardscope validate`."
            return [], missing, [], no_update, [], None
        names = [outcome.case.name for outcome in outcomes]
        known = {
            "expected": any(outcome.interval_s is not None for outcome in outcomes),
            "stolen": any(outcome.stolen_share is not None for outcome in outcomes),
        }
        shown = run if run in names else names[0]
        return tiles(kpis(outcomes)), machine(stored), rows(outcomes), columns(**known), names, shown

    @app.callback(Output("validate-details", "children"), Input("validate-run", "value"), Input("validation", "value"))
    def explain(run: str | None, key: str | None) -> Any:
        stored = _stored(store, key)
        outcome = next((outcome for outcome in _outcomes(store, key) if outcome.case.name == run), None)
        return None if stored is None or outcome is None else details(stored, outcome)


def _add_choice(app: Dash, store: Store) -> None:
    @app.callback(
        Output("validate-run", "value", allow_duplicate=True),
        [Input(f"{name}-graph", "clickData") for name in _GRAPHS],
        Input("validate-rows", "cellClicked"),
        prevent_initial_call=True,
    )
    def choose(*clicks: Any) -> Any:
        if ctx.triggered_id == "validate-rows":
            return clicks[-1]["rowId"] if clicks[-1] else no_update
        click = clicks[[f"{name}-graph" for name in _GRAPHS].index(ctx.triggered_id)]
        return click["points"][0].get("customdata", no_update) if click else no_update


def _stored(store: Store, key: str | None) -> Stored | None:
    try:
        return store.validations.get(key) if key else None
    except UnknownNameError:  # an upload that gave way to others
        return None


def _outcomes(store: Store, key: str | None) -> Sequence[ValidatedRun]:
    stored = _stored(store, key)
    return () if stored is None else sorted(stored.validation.outcomes, key=lambda outcome: -abs(outcome.error))


def _page(store: Store, own: Mapping[str, str]) -> Any:
    known, by = store.validations, own.get("by", "")
    which = choice("validation", "Validation", known.options(), known.shown(own.get("validation")), 190)
    run = choice("validate-run", "Run  /", [], own.get("run"), 400, searchable=True)
    parts = [
        html.Div(id="validate-kpis", className="kpis"),
        _above(by if by in GROUPINGS else next(iter(GROUPINGS))),
        html.Div(id="validate-details", **LIVE),
        _below(),
        _published(),
        card(
            "validate-table",
            "Runs, worst first (click one for its details)",
            [table("validate-rows", columns(), 380, "run")],
            formats=(),
        ),
        html.Div(id="validate-machine", className="figure-note"),
    ]
    controls = dmc.Group([which, run], align="end", gap="sm")
    return page("Validate: predicted against actual", parts, controls, ["validation", "run", "by"])


def _above(by: str) -> Any:
    grouping = switch("validate-by", "Group runs by", list(GROUPINGS), by)
    scatter = graph("scatter-graph", 400, "Predicted against actual step times; the table below holds the same")
    bars = graph("errors-graph", 400, "Signed error of each run, worst first in each group; the table holds the same")
    cards = [
        card("scatter", "Step time: predicted against actual", [scatter]),
        card("errors", "Signed error of each run (above: the group's mean off)", [bars], controls=[grouping]),
    ]
    return beside(cards)


def _below() -> Any:
    titles = {"volume": "Volume: error over bytes sent", "memory-error": "Memory: error over peak of the fullest rank",
              "load": "Step: error over the machine's load"}  # fmt: skip
    return beside([card(name, title, [graph(f"{name}-graph", 230, title)]) for name, title in titles.items()])


def _published() -> Any:
    """What the runs above cannot say: how near predictions come on GPUs."""
    sets = published_sets()
    words = "Predicted against measured steps on GPUs; the table beside it sums them up"
    drawn = graph("published-graph", 300, words, published_steps(sets))
    rows = [
        [_set_name(each, i), f"{each.steps}",
         f"{each.failed}", f"{each.median:.1%}", f"{each.bias:+.1%}", f"{each.worst:+.1%}"]
        for i, each in enumerate(sets)
    ]  # fmt: skip
    titles = ("measured by others", "steps", "refused", "median off", "bias", "worst")
    summed = html.Div(plain_table(titles, rows), **scrolled("Measured by others", "tasks-table"))
    body = beside([drawn, summed], className="columns")
    return card("published", "On GPUs: steps that others measured and published", [body])


def _set_name(each: PublishedSet, number: int) -> list[Any]:
    """A set's title behind a mark as its points have it."""
    look = {"background": LINES[number % len(LINES)]}
    return [html.I(className=f"dot {shape_of(number)}", style=look), each.title]
