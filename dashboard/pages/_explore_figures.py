"""Explore: the figures, and one selection that they share."""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from dashboard import columns
from dashboard.clientside import effect
from dashboard.figures.breakdown import breakdown
from dashboard.figures.load_balance import layer_balance, load_balance
from dashboard.figures.memory import memory
from dashboard.figures.network import link_use, topology
from dashboard.figures.style import Figure, message, short_names
from dashboard.figures.swimlanes import swimlanes
from dashboard.figures.traffic import traffic_matrix
from dashboard.measures import shares
from dashboard.pages._explore_words import device_detail, layer_detail, task_detail
from dashboard.store import Outcome, Store
from simulator.run import Run


def add(app: Dash, store: Store) -> None:
    """Register the callbacks of the figures and of the selection."""
    _add_figures(app, store)
    _add_selection(app, store)


def _add_figures(app: Dash, store: Store) -> None:
    @app.callback(
        Output("balance-graph", "figure"),
        Output("partition-graph", "figure"),
        Input("configuration", "data"),
        Input("baseline", "data"),
        Input("selection", "data"),
        Input("balance-by", "value"),
        prevent_initial_call=True,
    )
    def draw_selected(query: str, baseline: str | None, selection: dict[str, Any], by: str) -> tuple[Figure, Figure]:
        outcome, before = _pair(store, query, baseline)
        if outcome.run is None or outcome.cluster is None:
            return message("no run"), message("no run")
        layer, device = selection.get("layer"), selection.get("device")
        run, cluster = outcome.run, outcome.cluster
        balance = load_balance(run, cluster, before, device) if by == "device" else layer_balance(run, cluster, layer)
        return balance, swimlanes(run, outcome.profile, cluster, layer, device)

    @app.callback(
        Output("traffic-graph", "figure"),
        Input("configuration", "data"),
        Input("phase", "value"),
        Input("scale", "value"),
        prevent_initial_call=True,
    )
    def draw_traffic(query: str, phase: str, scale: str) -> Figure:
        outcome, _ = _pair(store, query, None)
        if outcome.run is None or outcome.cluster is None:
            return message("no run")
        chosen = None if phase == "all" else phase
        return traffic_matrix(outcome.run, outcome.cluster, chosen, scale == "log")

    @app.callback(
        Output("split-graph", "figure"),
        Output("memory-graph", "figure"),
        Output("topology-graph", "figure"),
        Output("links-graph", "figure"),
        Output("drawn", "data"),
        Input("configuration", "data"),
        Input("baseline", "data"),
        Input("split-by", "value"),
        prevent_initial_call=True,
    )
    def draw_rest(query: str, baseline: str | None, by: str) -> tuple[Any, ...]:
        outcome, before = _pair(store, query, baseline)
        if outcome.run is None or outcome.cluster is None:
            return *((message("no run"),) * 4), query
        run, cluster = outcome.run, outcome.cluster
        return (
            _split(outcome, store, baseline, by),
            memory(run, cluster, before),
            topology(run, cluster),
            link_use(run, cluster),
            query,
        )


def _add_selection(app: Dash, store: Store) -> None:
    @app.callback(
        Output("selection", "data"),
        Input("balance-graph", "clickData"),
        Input("partition-graph", "clickData"),
        Input("tasks", "cellClicked"),
        Input("find-layer", "value"),
        Input({"type": "waited", "task": ALL}, "n_clicks"),
        State("balance-by", "value"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def select(
        balance: Any, partition: Any, cell: Any, layer: str | None, waited: list[int | None], by: str, query: str
    ) -> Any:
        source = ctx.triggered_id
        if source == "balance-graph" and balance:
            return {by: balance["points"][0]["customdata"][0], "query": query}
        if source == "partition-graph" and partition:
            return {"layer": partition["points"][0]["customdata"][0], "query": query}
        if source == "tasks" and cell:
            return {"task": int(cell["rowId"]), "query": query}
        if source == "find-layer":
            return {"layer": int(layer) if layer else None, "query": query}
        return {"task": source["task"], "query": query} if any(waited) else no_update

    @app.callback(
        Output("detail", "children"),
        Input("selection", "data"),
        Input("configuration", "data"),
        prevent_initial_call=True,
    )
    def detail(selection: dict[str, Any], query: str) -> Any:
        outcome, _ = _pair(store, query, None)
        if outcome.run is None:
            return None
        if selection.get("task") is not None and selection.get("query") == query:
            return task_detail(outcome, selection["task"])
        if selection.get("layer") is not None and selection["layer"] < len(outcome.profile.layers):
            return layer_detail(outcome.run, selection["layer"])
        if selection.get("device") is not None and selection["device"] < len(outcome.run.report.devices):
            return device_detail(outcome.run, selection["device"])
        return None

    effect(app, "highlight", Input("selection", "data"))

    @app.callback(
        Output("tasks", "getRowsResponse"),
        Input("tasks", "getRowsRequest"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def rows(request: dict[str, Any] | None, query: str | None) -> Any:
        if not request or not query:
            return no_update
        outcome, _ = _pair(store, query, None)
        if outcome.run is None or outcome.cluster is None:
            return {"rowData": [], "rowCount": 0}
        sort = (request.get("sortModel") or [{"colId": "start_ms", "sort": "asc"}])[0]
        first, last = int(request["startRow"]), min(int(request["endRow"]), int(request["startRow"]) + 500)
        found = columns.table_rows(outcome.run, outcome.cluster, first, last, sort["colId"], sort["sort"] == "desc")
        return {"rowData": [{**row, "id": str(row["task"])} for row in found], "rowCount": len(outcome.run.graph)}


def _pair(store: Store, query: str | None, baseline: str | None) -> tuple[Outcome, Run | None]:
    """The outcome of a query and the baseline's run; nothing is drawn before there is a query."""
    if query is None:
        raise PreventUpdate
    return store.outcome(store.read(query)[0]), store.outcome(store.read(baseline)[0]).run if baseline else None


def _split(outcome: Outcome, store: Store, baseline: str | None, by: str) -> Figure:
    assert outcome.run is not None and outcome.cluster is not None
    mine = shares(outcome.run, outcome.cluster)
    if by == "device":
        return breakdown(list(zip(short_names(outcome.cluster), mine.devices, strict=False)))
    rows = [("now", mine.total)]
    before = store.outcome(store.read(baseline)[0]) if baseline else None
    if before is not None and before.run is not None and before.cluster is not None:
        rows.insert(0, ("baseline", shares(before.run, before.cluster).total))
    return breakdown(rows)
