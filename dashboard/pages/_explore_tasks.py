"""Explore: the table of tasks, made when everything above it is drawn; its rows come as they are scrolled to."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboard.figures import span_columns
from dashboard.frame.cards import card, column, table
from dashboard.state.store import Store

_HEIGHT = 320


def tasks_card() -> Any:
    """The card, and what the page sets once its other parts are drawn: making the table costs it half a second."""
    body = [html.Div(id="tasks-body", style={"minHeight": _HEIGHT}), dcc.Store(id="drawn")]
    return card("tasks-card", "Tasks: everything the timeline shows, as a table", body, formats=())


def add(app: Dash, store: Store) -> None:
    """Register the callbacks of the table: that it is there, its rows, a click on one."""

    @app.callback(Output("tasks-body", "children"), Input("drawn", "data"), prevent_initial_call=True)
    def body(_: bool) -> Any:
        return _table()

    @app.callback(
        Output("selection", "data", allow_duplicate=True),
        Input("tasks", "cellClicked"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def select(cell: Any, query: str) -> Any:
        return {"task": int(cell["rowId"]), "query": query} if cell else no_update

    @app.callback(
        Output("tasks", "getRowsResponse"),
        Input("tasks", "getRowsRequest"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def rows(request: dict[str, Any] | None, query: str | None) -> Any:
        if not request or not query:
            return no_update
        outcome = store.at_hand(store.read(query)[0])
        if outcome.run is None or outcome.cluster is None:
            return {"rowData": [], "rowCount": 0}
        sort = (request.get("sortModel") or [{"colId": "start_ms", "sort": "asc"}])[0]
        first, last = int(request["startRow"]), min(int(request["endRow"]), int(request["startRow"]) + 500)
        tasks = span_columns.table_rows(
            outcome.run, outcome.cluster, first, last, sort["colId"], sort["sort"] == "desc"
        )
        return {"rowData": [{**row, "id": str(row["task"])} for row in tasks], "rowCount": len(outcome.run.graph)}


def _table() -> Any:
    columns = [
        column("task", "task", 90),
        column("kind", "kind", 130),
        column("where", "where", 160),
        column("layer", "layer", 215),
        column("microbatch", "micro-batch", 130),
        column("start_ms", "start (ms)", 110, decimals=3),
        column("takes_ms", "takes (ms)", 110, decimals=3),
        column("bytes", "bytes", 130, decimals=0),
    ]
    return table("tasks", columns, _HEIGHT, "id", rowModelType="infinite", cacheBlockSize=100, maxBlocksInCache=20)
