"""Sweep: many configurations at once, as a table that fills while they run; a click explores one."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from flask import Flask, Response, abort

import partitioners
from dashboard.figures.style import Figure, message
from dashboard.figures.sweep import QUANTITIES, axis_title, parallel, quantity_over_parameters, trade_off
from dashboard.frame.cards import LIVE, aria, card, graph
from dashboard.frame.shell import Page
from dashboard.state.configuration import Configuration
from dashboard.state.inventory import label
from dashboard.state.store import Store
from dashboard.state.sweeps import CANCELLED, DONE, PARAMETERS, PAUSED, RUNNING, Sweep, Sweeps, configuration_of
from dashboard.words.sweep import best_by_value
from simulator.errors import ShardscopeError
from simulator.sweep.chart import value_text
from simulator.sweep.export import write_csv, write_parquet

_NONE = "none"


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    sweeps = Sweeps(store)
    _add_running(app, store, sweeps)
    _add_figures(app, store, sweeps)
    _add_files(app, sweeps)

    def content(now: Configuration, baseline: Configuration | None, own: Mapping[str, str]) -> Any:
        return _page(now)

    return content


def _add_running(app: Dash, store: Store, sweeps: Sweeps) -> None:
    @app.callback(
        Output("sweep", "data"),
        Output("sweep-problem", "children"),
        Input("sweep-start", "n_clicks"),
        Input("sweep-cancel", "n_clicks"),
        Input("sweep-resume", "n_clicks"),
        State("sweep-strategies", "value"),
        [State(f"sweep-{axis}", "value") for axis in ("x", "x-values", "y", "y-values")],
        State("sweep", "data"),
        State("sweep-base", "data"),
        prevent_initial_call=True,
    )
    def run(start: int, cancel: int, resume: int, strategies: list[str], *rest: Any) -> tuple[Any, Any]:
        (x, x_values, y, y_values), number, base = rest[:4], rest[4], rest[5]
        if ctx.triggered_id == "sweep-cancel":
            sweeps.cancel(number)
            return no_update, None
        if ctx.triggered_id == "sweep-resume":
            sweeps.resume(number)
            return number, None
        values = {x: x_values, **({y: y_values} if y != _NONE else {})}
        try:
            return sweeps.start(store.read(base)[0], strategies or [], values), None
        except (ValueError, LookupError) as error:
            return no_update, dmc.Alert(str(error), title="That cannot be swept", color="red", variant="light")

    for axis in ("x", "y"):
        shown = Output(f"sweep-{axis}-values", "value")
        app.callback(shown, Input(f"sweep-{axis}", "value"), prevent_initial_call=True)(_example)

    @app.callback(
        Output("sweep-progress", "children"),
        Output("sweep-rows", "rowData"),
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
        # Asked again before it answered, Dash would drop the answer: a busy server would never be heard.
        running=[(Output("sweep-tick", "max_intervals"), 0, -1)],
    )
    def stream(tick: int, number: int | None, seen: list[Any]) -> tuple[Any, ...]:
        sweep = sweeps.get(number)
        if sweep is None:
            return "No sweep has run yet.", [], _columns(()), True, True, True, None, None, None
        now = [sweep.number, len(sweep.rows), sweep.state]
        if seen == now:
            return (no_update,) * 9
        running = sweep.state == RUNNING
        stopped = sweep.state in (CANCELLED, PAUSED)
        done = [row for row in list(sweep.rows) if row["status"] == DONE]
        return (
            _progress(sweep), _table_rows(sweep), _columns(sweep.swept), not running, not running, not stopped,
            best_by_value(done, sweep.swept), _files(sweep.number), now,
        )  # fmt: skip


def _add_figures(app: Dash, store: Store, sweeps: Sweeps) -> None:
    @app.callback(
        Output("sweep-over-graph", "figure"),
        Output("sweep-pareto-graph", "figure"),
        Output("sweep-parallel-graph", "figure"),
        Input("sweep-seen", "data"),
        Input("sweep-quantity", "value"),
        Input("sweep-against", "value"),
    )
    def draw(seen: list[Any] | None, quantity: str, against: str) -> tuple[Figure, ...]:
        sweep = sweeps.get(seen[0]) if seen else None
        if sweep is None:
            return (message("start a sweep"),) * 3
        rows = [row for row in list(sweep.rows) if row["status"] == DONE]
        return (
            quantity_over_parameters(rows, sweep.swept, quantity),
            trade_off(rows, "step_s", against),
            parallel(rows, sweep.swept),
        )

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
        wanted = _clicked(clicked)
        row = next((row for row in sweep.rows if row["number"] == wanted), None) if sweep else None
        if row is None:
            return None
        query = configuration_of(row, now, store).query()
        title = f"Explore point {wanted}: {row['strategy']} on {row['devices']} devices"
        return dcc.Link(title, href=f"/?{query}", className="nav-link")


def _example(name: str) -> str:
    return PARAMETERS.get(name, "")


def _clicked(event: Any) -> int | None:
    """The number of the point that was clicked, in the table or in a figure."""
    if not event:
        return None
    if "rowId" in event:
        return int(event["rowId"])
    number = event["points"][0].get("customdata")
    return int(number) if isinstance(number, int) else None


def _page(now: Configuration) -> Any:
    quantity = dmc.Select(
        id="sweep-quantity", data=_quantities(), value="step_s", size="xs", allowDeselect=False, **aria("Quantity"),
    )  # fmt: skip
    against = dmc.Select(
        id="sweep-against", data=_quantities(), value="peak_memory_bytes", size="xs", allowDeselect=False,
        **aria("Step against"),
    )  # fmt: skip
    return html.Main(
        dmc.Stack([
            html.H1("Sweep", className="page-title"),
            html.Div(f"Everything else stays as on Explore: {now.devices} × {label(now.cluster)}, "
                     f"{now.profile.partition('@')[0]}.", className="figure-note"),
            dcc.Store(id="sweep", storage_type="session"),
            dcc.Store(id="sweep-seen"),
            dcc.Store(id="sweep-base", data=now.query()),
            dcc.Interval(id="sweep-tick", interval=700),
            _form(),
            html.Div(id="sweep-problem", role="alert"),
            dmc.Group([html.Div(id="sweep-progress", **LIVE), html.Div(id="sweep-files"),
                       html.Div(id="sweep-explore", **LIVE)], gap="lg"),
            html.P(id="sweep-answer", className="partition-sentence", **LIVE),
            dmc.SimpleGrid([
                card("sweep-over", "Over what was swept", [graph("sweep-over-graph", 320, "Quantity over parameters")],
                     controls=[quantity]),
                card("sweep-pareto", "Step against", [graph("sweep-pareto-graph", 320, "Trade-off of two quantities")],
                     controls=[against]),
            ], cols={"base": 1, "lg": 2}, spacing="sm"),
            card("sweep-parallel", "All of it: parallel coordinates",
                 [graph("sweep-parallel-graph", 300, "Parallel coordinates of all points")], formats=("png", "svg")),
            card("sweep-table", "Points (click one to explore it)", [_grid()], formats=()),
        ], gap="sm"),
        className="page",
    )  # fmt: skip


def _form() -> Any:
    names = [{"value": name, "label": axis_title(name)} for name in PARAMETERS]
    plain = {"w": 170, "size": "xs"}
    first = "inter_bandwidth_bytes_per_s"
    fields = [
        dmc.MultiSelect(
            id="sweep-strategies", label="Strategies", data=list(partitioners.strategies()),
            value=["data", "pipeline", "owt"], w=330, size="xs",
        ),
        dmc.Select(id="sweep-x", label="Parameter", data=names, value=first, allowDeselect=False, **plain),
        dmc.TextInput(id="sweep-x-values", label="Values", value=PARAMETERS[first], **plain),
        dmc.Select(
            id="sweep-y", label="Second parameter", data=[{"value": _NONE, "label": "none"}, *names], value=_NONE,
            allowDeselect=False, **plain,
        ),
        dmc.TextInput(id="sweep-y-values", label="Its values", value="", **plain),
        dmc.Button("Start", id="sweep-start", size="xs"),
        dmc.Button("Cancel", id="sweep-cancel", size="xs", variant="default", disabled=True),
        dmc.Button("Resume", id="sweep-resume", size="xs", variant="default", disabled=True),
    ]  # fmt: skip
    return dmc.Paper(dmc.Group(fields, align="end", gap="sm"), withBorder=True, p="sm", radius="md")


def _quantities() -> list[dict[str, str]]:
    return [{"value": name, "label": title} for name, (title, _) in QUANTITIES.items()]


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


def _files(number: int) -> Any:
    links = [html.A(kind.upper(), href=f"sweep/{number}.{kind}", className="nav-link") for kind in ("csv", "parquet")]
    return dmc.Group(["Table:", *links], gap=8)


def _add_files(app: Dash, sweeps: Sweeps) -> None:
    server: Flask = app.server

    @server.get("/sweep/<int:number>.<kind>")
    def table(number: int, kind: str) -> Response:
        sweep = sweeps.get(number)
        writers = {"csv": (write_csv, "text/csv"), "parquet": (write_parquet, "application/vnd.apache.parquet")}
        if sweep is None or kind not in writers:
            abort(404, f"there is no table sweep/{number}.{kind} (any more)")
        write, media = writers[kind]
        names = dict.fromkeys(name for row in list(sweep.rows) for name in row)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"sweep.{kind}"
            try:
                write([{name: row.get(name) for name in names} for row in list(sweep.rows)], path)
            except ShardscopeError as error:
                abort(501, str(error))
            content = path.read_bytes()
        disposition = f'attachment; filename="sweep-{number}.{kind}"'
        return Response(content, mimetype=media, headers={"Content-Disposition": disposition})


def _table_rows(sweep: Sweep) -> list[dict[str, Any]]:
    ordered = sorted(sweep.rows, key=lambda row: row.get("step_s") or float("inf"))
    return [
        {
            "id": str(row["number"]),
            **{name: row.get(name) for name in ("number", "strategy", "status", "error")},
            **{name: value_text(name, row.get(name)) for name in sweep.swept},
            **{name: row[name] * factor for name, (_, factor) in QUANTITIES.items() if row.get(name) is not None},
        }
        for row in ordered
    ]


def _columns(swept: Sequence[str]) -> list[dict[str, Any]]:
    shown = "params.value == null ? '' : d3.format(',.4~g')(params.value)"
    number = {"type": "rightAligned", "valueFormatter": {"function": shown}}
    return [
        {"field": "number", "headerName": "point", "width": 80},
        {"field": "strategy", "width": 110},
        *[{"field": name, "headerName": axis_title(name), "width": 140} for name in swept if name != "strategy"],
        *[{"field": name, "headerName": title, "width": 150, **number} for name, (title, _) in QUANTITIES.items()],
        {"field": "status", "width": 100},
        {"field": "error", "flex": 1, "minWidth": 240, "tooltipField": "error"},
    ]


def _grid() -> Any:
    return dag.AgGrid(
        id="sweep-rows", columnDefs=_columns(()), rowData=[], defaultColDef={"sortable": True, "resizable": True},
        getRowId="params.data.id", dashGridOptions={"rowHeight": 28, "headerHeight": 30}, style={"height": 340},
    )  # fmt: skip
