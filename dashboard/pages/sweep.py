"""Sweep: many configurations at once, as a table that fills while they run; a click explores one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from flask import Flask, Response, abort

from dashboard.figures.style import message
from dashboard.figures.sweep import parallel, quantity_over_parameters, trade_off
from dashboard.frame.panels import keep_in_address
from dashboard.frame.shell import Page
from dashboard.pages._sweep_layout import FORM, NONE, columns_of_table, sweep_page
from dashboard.state.alternatives import alternatives
from dashboard.state.configuration import Configuration
from dashboard.state.planning import values_around
from dashboard.state.store import Store
from dashboard.state.sweeps import CANCELLED, DONE, PARAMETERS, PAUSED, RUNNING, Sweep, Sweeps, configuration_of
from dashboard.words.sweep import QUANTITIES, axis_title, best_by_value, interval
from simulator.errors import InputError
from simulator.sweep.chart import value_text
from simulator.sweep.export import csv_text


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    sweeps = Sweeps(store)
    _add_running(app, store, sweeps)
    _add_figures(app, store, sweeps)
    _add_files(app, sweeps)
    keep_in_address(app, *(Input(f"sweep-{name}", "value") for name in FORM))

    def content(now: Configuration, baseline: Configuration | None, own: Mapping[str, str]) -> Any:
        return sweep_page(now, own, alternatives(now, store.profile(now)), _examples(store, now))

    return content


def _examples(store: Store, now: Configuration) -> dict[str, str]:
    """By parameter values to sweep, around what the controls say where the machine is one."""
    with suppress(InputError):
        return {**PARAMETERS, **values_around(now, store.profile(now), store.usual_cluster(now))}
    return dict(PARAMETERS)


def _add_running(app: Dash, store: Store, sweeps: Sweeps) -> None:
    def example(name: str, base: str) -> str:
        return _examples(store, store.read(base)[0]).get(name, "")

    @app.callback(
        Output("sweep", "data"),
        Output("sweep-own", "data"),
        Output("sweep-problem", "children"),
        Input("sweep-start", "n_clicks"),
        Input("sweep-cancel", "n_clicks"),
        Input("sweep-resume", "n_clicks"),
        State("sweep-strategies", "value"),
        [State(f"sweep-{axis}", "value") for axis in ("x", "x-values", "y", "y-values")],
        State("sweep", "data"),
        State("sweep-base", "data"),
        State("sweep-own", "data"),
        prevent_initial_call=True,
    )
    def run(start: int, cancel: int, resume: int, strategies: list[str], *rest: Any) -> tuple[Any, Any, Any]:
        (x, x_values, y, y_values), number, base, own = rest[:4], rest[4], rest[5], rest[6] or []
        if ctx.triggered_id == "sweep-cancel":
            sweeps.cancel(number)
            return no_update, no_update, None
        if ctx.triggered_id == "sweep-resume":
            sweeps.resume(number)
            return number, no_update, None
        values = {x: x_values, **({y: y_values} if y != NONE else {})}
        try:
            number = sweeps.start(store.read(base)[0], strategies or [], values)
            return number, [*own, number], None
        except (ValueError, LookupError) as error:
            alert = dmc.Alert(str(error), title="That cannot be swept", color="red", variant="light")
            return no_update, no_update, alert

    @app.callback(
        Output("sweep", "data", allow_duplicate=True),
        Input({"type": "sweep-pick", "number": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def pick(clicks: list[int | None]) -> Any:
        return ctx.triggered_id["number"] if any(clicks) else no_update

    for axis in ("x", "y"):
        values, swept = Output(f"sweep-{axis}-values", "value"), Input(f"sweep-{axis}", "value")
        app.callback(values, swept, State("sweep-base", "data"), prevent_initial_call=True)(example)

    @app.callback(
        Output("sweep-progress", "children"),
        Output("sweep-list", "children"),
        Output("sweep-rows", "columnDefs"),
        Output("sweep-tick", "disabled"),
        Output("sweep-cancel", "disabled"),
        Output("sweep-resume", "disabled"),
        Output("sweep-answer", "children"),
        Output("sweep-files", "children"),
        Output("sweep-seen", "data"),
        Input("sweep-tick", "n_intervals"),
        Input("sweep", "data"),
        State("sweep-seen", "data"),
        State("sweep-own", "data"),
        # Asked again before it answered, Dash would drop the answer: a busy server would never be heard.
        running=[(Output("sweep-tick", "max_intervals"), 0, -1)],
    )
    def stream(tick: int, number: int | None, seen: list[Any], numbers: list[int] | None) -> tuple[Any, ...]:
        sweep = sweeps.get(number)
        if sweep is None:
            return "No sweep has run yet.", None, columns_of_table(()), True, True, True, None, None, None
        own = [other for other in map(sweeps.get, numbers or []) if other is not None]
        now = [[each.number, len(each.rows), each.state] for each in (sweep, *own)]
        if seen == now:
            return (no_update,) * 9
        running = sweep.state == RUNNING
        ticks = any(each.state == RUNNING for each in (sweep, *own))
        stopped = sweep.state in (CANCELLED, PAUSED)
        done = [row for row in list(sweep.rows) if row["status"] == DONE]
        return (
            _progress(sweep), _list(own, sweep), columns_of_table(sweep.swept, done), not ticks, not running,
            not stopped, best_by_value(done, sweep.swept, over=sweep.state == DONE), _files(sweep.number), now,
        )  # fmt: skip


def _add_figures(app: Dash, store: Store, sweeps: Sweeps) -> None:
    @app.callback(
        Output("sweep-over-graph", "figure"),
        Output("sweep-pareto-graph", "figure"),
        Output("sweep-parallel-graph", "figure"),
        Output("sweep-rows", "rowData"),
        Input("sweep-seen", "data"),
        Input("sweep-brush", "data"),
        Input("sweep-quantity", "value"),
        Input("sweep-against", "value"),
    )
    def draw(seen: list[Any] | None, brushed: list[int] | None, quantity: str, against: str) -> tuple[Any, ...]:
        sweep = sweeps.get(seen[0][0]) if seen else None
        if sweep is None:
            return *((message("start a sweep"),) * 3), []
        rows = [row for row in list(sweep.rows) if row["status"] == DONE]
        return (
            quantity_over_parameters(rows, sweep.swept, quantity),
            trade_off(rows, "step_s", against),
            parallel(rows, sweep.swept, frozenset(brushed or ())),
            _table_rows(sweep, frozenset(brushed or ())),
        )

    @app.callback(
        Output("sweep-brush", "data"),
        Input("sweep-parallel-graph", "selectedData"),
        Input("sweep", "data"),
        prevent_initial_call=True,
    )
    def brush(selected: Any, number: int | None) -> Any:
        """The numbers of the points whose lines the user drew a box around; a double click takes all again."""
        drawn = selected if ctx.triggered_id == "sweep-parallel-graph" else None
        if drawn and "range" not in drawn:  # of a figure drawn anew, not of a box
            return no_update
        points = drawn["points"] if drawn else ()
        return sorted({point["customdata"] for point in points if "customdata" in point})

    @app.callback(
        Output("sweep-explore", "children"),
        Input("sweep-rows", "cellClicked"),
        Input("sweep-over-graph", "clickData"),
        Input("sweep-pareto-graph", "clickData"),
        State("sweep", "data"),
        State("sweep-base", "data"),
        prevent_initial_call=True,
    )
    def explore(cell: Any, line: Any, dot: Any, number: int | None, base: str) -> Any:
        sweep, now = sweeps.get(number), store.read(base)[0]
        clicked = {"sweep-rows": cell, "sweep-over-graph": line, "sweep-pareto-graph": dot}.get(str(ctx.triggered_id))
        clicked_number = _clicked(clicked)
        row = next((row for row in sweep.rows if row["number"] == clicked_number), None) if sweep else None
        if row is None:
            return None
        query = configuration_of(row, now, store).query()
        title = f"Explore point {clicked_number}: {row['strategy']} on {row['devices']} devices"
        return dcc.Link(title, href=f"/?{query}", className="nav-link")


def _clicked(event: Any) -> int | None:
    """The number of the point that was clicked, in the table or in a figure."""
    if not event:
        return None
    if "rowId" in event:
        return int(event["rowId"])
    number = event["points"][0].get("customdata")
    return int(number) if isinstance(number, int) else None


def _progress(sweep: Sweep) -> str:
    done, whole = len(sweep.rows), len(sweep.points.points)
    failed = sum(row["status"] != DONE for row in sweep.rows)
    not_run = f", {failed} cannot run" if failed else ""
    if sweep.state == CANCELLED:
        return f"Cancelled after {done} of {whole} points{not_run}."
    if sweep.state == PAUSED:
        return (
            f"Paused after {done} of {whole} points{not_run}: nobody was looking, or it took too long. Resume goes on."
        )
    if sweep.reason:
        return f"Stopped after {done} of {whole} points: {sweep.reason}"
    return f"{done} of {whole} points{not_run}" + ("." if sweep.state == DONE else " …")


def _list(own: Sequence[Sweep], shown: Sweep) -> Any:
    """The sweeps that this tab has started, where there are several: a click shows one."""
    if len(own) < 2:
        return None
    return [
        html.Button(
            f"{ordinal}: over {', '.join(axis_title(name) for name in each.swept)}, "
            f"{len(each.rows)} of {len(each.points.points)} {each.state}",
            id={"type": "sweep-pick", "number": each.number}, className="offer", disabled=each.number == shown.number,
        )
        for ordinal, each in enumerate(own, 1)
    ]  # fmt: skip


def _files(number: int) -> Any:
    return dmc.Group(["Table:", html.A("CSV", href=f"sweep/{number}.csv", className="nav-link")], gap=8)


def _add_files(app: Dash, sweeps: Sweeps) -> None:
    server: Flask = app.server

    @server.get("/sweep/<int:number>.csv")
    def table(number: int) -> Response:
        sweep = sweeps.get(number)
        if sweep is None:
            abort(404, f"there is no table sweep/{number}.csv (any more)")
        rows = sorted(sweep.rows, key=lambda row: int(row["number"]))  # they come in the order in which they are done
        disposition = f'attachment; filename="sweep-{number}.csv"'
        return Response(csv_text(rows), mimetype="text/csv", headers={"Content-Disposition": disposition})


def _table_rows(sweep: Sweep, brushed: frozenset[int]) -> list[dict[str, Any]]:
    """The rows in brushed (all where it is empty), those that fit first, the shortest step first."""
    shown = [row for row in list(sweep.rows) if not brushed or row["number"] in brushed]
    ordered = sorted(shown, key=lambda row: (row.get("fits") == 0, row.get("step_s") or float("inf")))
    return [
        {
            "id": str(row["number"]),
            **{name: row.get(name) for name in ("number", "strategy")},
            "status": row.get("error") or ("does not fit" if row.get("fits") == 0 else row["status"]),
            **{name: value_text(name, row.get(name)) for name in sweep.swept},
            "expected": interval(row),
            **{name: row[name] * each.factor for name, each in QUANTITIES.items() if row.get(name) is not None},
        }
        for row in ordered
    ]
