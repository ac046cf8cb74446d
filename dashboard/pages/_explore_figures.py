"""Explore: the figures, and one selection that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from dashboard.figures import span_columns
from dashboard.figures.breakdown import breakdown
from dashboard.figures.load_balance import layer_balance, load_balance
from dashboard.figures.memory import memory
from dashboard.figures.network import link_use, topology
from dashboard.figures.style import Figure, message
from dashboard.figures.traffic import traffic_matrix
from dashboard.frame.clientside import effect, in_browser
from dashboard.pages._explore_words import device_detail, layer_detail, task_detail
from dashboard.state.device_groups import MOST_ALONE, device_groups, slowest
from dashboard.state.measures import shares
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from simulator.run import Run


def add(app: Dash, store: Store) -> None:
    """Register the callbacks of the figures and of the selection."""
    _add_figures(app, store)
    _add_selection(app, store)


def _add_figures(app: Dash, store: Store) -> None:
    """One request for all figures of the first screen; those below it are requested after that."""

    @app.callback(
        Output("balance-graph", "figure"),
        Output("traffic-graph", "figure"),
        Output("split-graph", "figure"),
        Output("detail", "children"),
        Output("drawn-above", "data"),
        Input("configuration", "data"),
        Input("baseline", "data"),
        Input("selection", "data"),
        Input("balance-by", "value"),
        Input("phase", "value"),
        Input("scale", "value"),
        Input("split-by", "value"),
        prevent_initial_call=True,
    )
    def draw_above(
        query: str, baseline: str | None, selection: dict[str, Any], by: str, phase: str, scale: str, split_by: str
    ) -> tuple[Any, ...]:
        outcome, before = _pair(store, query, baseline)
        if outcome.run is None or outcome.cluster is None:
            return *((message("no run"),) * 3), None, query
        run, cluster = outcome.run, outcome.cluster
        changed = {trigger["prop_id"].partition(".")[0] for trigger in ctx.triggered}

        many = len(cluster.devices) > MOST_ALONE

        def fresh(inputs: set[str], draw: Callable[[], Any]) -> Any:
            return draw() if changed & {"configuration", *inputs} else no_update

        def balance() -> Figure:
            if by == "device":
                return load_balance(run, cluster, before, selection.get("device"), selection.get("group"))
            return layer_balance(run, cluster, selection.get("layer"))

        return (
            fresh({"baseline", "selection", "balance-by"}, balance),
            fresh({"phase", "scale", *(["selection"] if many else [])}, lambda: traffic_matrix(
                run, cluster, None if phase == "all" else phase, scale == "log", selection.get("group"))),
            fresh({"baseline", "split-by"}, lambda: _split(outcome, store, baseline, split_by)),
            fresh({"selection"}, lambda: _detail(outcome, run, selection, query)),
            query,
        )  # fmt: skip

    in_browser(
        app, "below", Output("below-configuration", "data"), Input("configuration", "data"),
        Input("drawn-above", "data"),
    )  # fmt: skip

    @app.callback(
        Output("memory-graph", "figure"),
        Output("topology-graph", "figure"),
        Output("links-graph", "figure"),
        Output("drawn", "data"),
        Input("below-configuration", "data"),
        Input("baseline", "data"),
        Input("selection", "data"),
        State("drawn", "data"),
        prevent_initial_call=True,
    )
    def draw_below(query: str, baseline: str | None, selection: dict[str, Any], drawn: str | None) -> tuple[Any, ...]:
        outcome, before = _pair(store, query, baseline)
        if outcome.run is None or outcome.cluster is None:
            return *((message("no run"),) * 3), query
        run, cluster = outcome.run, outcome.cluster
        opened = selection.get("group")
        if {trigger["prop_id"] for trigger in ctx.triggered} == {"selection.data"} and drawn == query:
            if len(cluster.devices) <= MOST_ALONE:
                raise PreventUpdate
            return memory(run, cluster, before, opened), topology(run, cluster, opened), no_update, no_update
        return memory(run, cluster, before, opened), topology(run, cluster, opened), link_use(run, cluster), query


def _add_selection(app: Dash, store: Store) -> None:
    @app.callback(
        Output("selection", "data"),
        Input("balance-graph", "clickData"),
        Input("tasks", "cellClicked"),
        Input("find-layer", "value"),
        Input({"type": "waited", "task": ALL}, "n_clicks"),
        State("balance-by", "value"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def select(balance: Any, cell: Any, layer: str | None, waited: list[int | None], by: str, query: str) -> Any:
        source = ctx.triggered_id
        if source == "balance-graph" and balance:
            hit = balance["points"][0]["customdata"]
            opens = by == "device" and hit[2]
            return {"group": hit[3], "query": query} if opens else {by: hit[0], "query": query}
        if source == "tasks" and cell:
            return {"task": int(cell["rowId"]), "query": query}
        if source == "find-layer":
            return {"layer": int(layer) if layer else None, "query": query}
        return {"task": source["task"], "query": query} if any(waited) else no_update

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
        tasks = span_columns.table_rows(
            outcome.run, outcome.cluster, first, last, sort["colId"], sort["sort"] == "desc"
        )
        return {"rowData": [{**row, "id": str(row["task"])} for row in tasks], "rowCount": len(outcome.run.graph)}


def _pair(store: Store, query: str | None, baseline: str | None) -> tuple[Outcome, Run | None]:
    """The outcome of a query and the baseline's run; nothing is drawn before there is a query."""
    if query is None:
        raise PreventUpdate
    return store.at_hand(store.read(query)[0]), store.at_hand(store.read(baseline)[0]).run if baseline else None


def _detail(outcome: Outcome, run: Run, selection: Mapping[str, Any], query: str) -> Any:
    """Details of the selection; a task's number has no meaning in another run."""
    task, layer, device = (selection.get(part) for part in ("task", "layer", "device"))
    if task is not None and selection.get("query") == query:
        return task_detail(outcome, task)
    if layer is not None and layer < len(outcome.profile.layers):
        return layer_detail(run, layer)
    return device_detail(run, device) if device is not None and device < len(run.report.devices) else None


def _split(outcome: Outcome, store: Store, baseline: str | None, by: str) -> Figure:
    assert outcome.run is not None and outcome.cluster is not None
    parts = shares(outcome.run, outcome.cluster)
    if by == "device":
        groups = device_groups(outcome.cluster, servers=False)
        shown = slowest(groups, outcome.run.report)
        return breakdown([(group.name, parts.devices[i]) for group, i in zip(groups, shown, strict=True)])
    rows = [("now", parts.total)]
    before = store.at_hand(store.read(baseline)[0]) if baseline else None
    if before is not None and before.run is not None and before.cluster is not None:
        rows.insert(0, ("baseline", shares(before.run, before.cluster).total))
    return breakdown(rows)
