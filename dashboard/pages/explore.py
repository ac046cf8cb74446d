"""Explore: the step of one configuration, simulated whenever a control changes; the table of its tasks."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboard.figures import span_columns
from dashboard.frame.cards import LIVE, aria, beside, card, column, legend, marked, menu, plot, scrolled, switch, table
from dashboard.frame.controls import rail
from dashboard.frame.shell import Page
from dashboard.pages import _explore_figures, _explore_step, _explore_strategies
from dashboard.pages._explore_figures import grid_card
from dashboard.pages._explore_strategies import nets_card, partition_card
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store

_PHASES = [
    {"value": "all", "label": "all"}, {"value": "forward", "label": "fwd"}, {"value": "backward", "label": "bwd"},
    {"value": "synchronisation", "label": "sync"},
]  # fmt: skip
_TASKS_HEIGHT = 320


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    _explore_step.add(app, store)
    _explore_figures.add(app, store)
    _explore_strategies.add(app, store)
    _add_tasks(app, store)

    def content(now: Configuration, baseline: Configuration | None, own: Mapping[str, str]) -> Any:
        tab = secrets.token_hex(8)
        parts = _explore_step.opened(store, tab, now, baseline)
        return html.Div(
            [
                dcc.Store(id="configuration"),
                dcc.Store(id="baseline", data=baseline.query() if baseline else None),
                dcc.Store(id="selection", data={}),
                dcc.Store(id="tab", data=tab),
                dcc.Store(id="load"),
                html.Div(
                    [dmc.Stack(rail(store, now), gap=8), _rail_buttons(parts)],
                    className="rail", role="region", tabIndex=0, **aria("Controls"),
                ),
                html.Main(
                    [
                        dmc.Stack([
                            *_top(parts),
                            _pane("answer", [_strategies(parts), grid_card(store, now), _timeline(), partition_card()]),
                            _pane("machine", [nets_card(), _three(), _two(), _tasks_card()]),
                        ], gap="sm"),
                        html.Div(id="detail", **LIVE),
                        html.Button("Controls", id="to-controls"),
                    ],
                    id="results", **marked(pane="answer"),
                ),
            ],
            className="explore",
        )  # fmt: skip

    return content


def _rail_buttons(parts: Mapping[str, Any]) -> Any:
    return html.Div([
        dmc.Group([
            dmc.Button("Pin baseline", id="pin", size="compact-xs", variant="light"),
            dmc.Button("Unpin", id="unpin", size="compact-xs", variant="subtle", color="gray"),
            dmc.Button("Reset", id="reset", size="compact-xs", variant="default"),
        ], gap=6),
        dmc.Group([
            dmc.Button("Undo", id="undo", size="compact-xs", variant="default"),
            menu("Recent runs", [html.Div(id="history-runs")], "Recent runs"),
        ], gap=6, mt=4),
        html.Div(parts.get("baseline-name"), id="baseline-name", className="figure-note"),
    ], className="rail-buttons")  # fmt: skip


def _top(parts: Mapping[str, Any]) -> list[Any]:
    return [
        html.H1("Explore", className="sr-only"),
        html.Div(parts.get("verdict"), id="verdict"),
        html.Div(parts.get("kpis"), id="kpis", className="kpis", **LIVE),
        html.Div(parts.get("why"), id="why", className="why", **LIVE),
        html.Div(parts.get("chips"), id="chips", className="chips"),
        html.Div(id="advice", className="advice-place"),
        html.Div([_tab("answer", "Answer"), _tab("machine", "Machine")], className="tabs", role="tablist",
                 **aria("What is shown of the step")),
    ]  # fmt: skip


def _tab(pane: str, title: str) -> Any:
    more: dict[str, Any] = {"aria-selected": str(pane == "answer").lower(), "aria-controls": pane}
    return html.Button(title, id=f"tab-{pane}", role="tab", **more, **marked(pane=pane))


def _pane(name: str, cards: list[Any]) -> Any:
    """What a tab shows; assets/explore.js draws what is seen alone."""
    named: dict[str, Any] = {"aria-labelledby": f"tab-{name}"}
    return html.Div(dmc.Stack(cards, gap="sm"), id=name, role="tabpanel", **named)


def _timeline() -> Any:
    find = dmc.Select(
        id="find-layer", placeholder="find a layer  /", searchable=True, clearable=True, size="xs", w=170, data=[],
        **aria("Find a layer"),
    )  # fmt: skip
    controls = [
        legend(),
        find,
        dmc.Button("Critical chain", id="critical", size="compact-xs", variant="default"),
        dmc.Button("Fit", id="fit", size="compact-xs", variant="default"),
    ]
    canvas = html.Div(
        id="timeline", className="timeline", tabIndex=0, role="application",
        **aria("Timeline of the step. W, A, S, D zoom and move, N and P walk through tasks, "
           "question mark lists all keys. The table of tasks below holds the same."),
    )  # fmt: skip
    hint = html.Div(
        "drag moves · wheel zooms after a click · shift-drag marks · W A S D F M N P C · ? for help",
        className="figure-note",
    )
    return card("timeline-card", "Timeline", [canvas, hint], controls=controls, formats=("png",))


def _three() -> Any:
    balance = switch("balance-by", "Load balance by", ["device", "layer"], "device")
    phase = switch("phase", "Phase", _PHASES, "all")
    scale = switch("scale", "Colour scale", ["lin", "log"], "lin")
    by = switch("split-by", "Where the step goes by", ["step", "device"], "step")
    sent = plot("traffic-graph", 260, "Bytes from each device to each other")
    cards = [
        card("balance", "Load balance", [plot("balance-graph", 260, "Compute over the mean")], controls=[balance]),
        card("traffic", "Traffic", [sent], controls=[phase, scale]),
        card("split", "Where the step goes", [plot("split-graph", 260, "Device time by use")], controls=[by]),
    ]
    return beside(cards, className="figures-three")


def _strategies(parts: Mapping[str, Any]) -> Any:
    table = html.Div(parts.get("strategies"), id="strategies", **scrolled("Strategies", "strategies"), **LIVE)
    return card("strategies-card", "Strategies, with these controls (click a name to switch)", [table], formats=())


def _two() -> Any:
    use = plot("links-graph", 260, "Utilisation of each link over time")
    tree = plot("topology-graph", 280, "Topology with link utilisation")
    cards = [
        card("memory", "Peak memory per device", [plot("memory-graph", 280, "Peak memory of each device")]),
        card("topology", "Network: how busy each link was", [tree]),
    ]
    return dmc.Stack([beside(cards), card("links", "Link utilisation over the step", [use])], gap="sm")


def _tasks_card() -> Any:
    """The card, and what the page sets once its other parts are drawn: making the table costs it half a second."""
    body = [html.Div(id="tasks-body", style={"minHeight": _TASKS_HEIGHT}), dcc.Store(id="drawn")]
    return card("tasks-card", "Tasks: everything the timeline shows, as a table", body, formats=())


def _add_tasks(app: Dash, store: Store) -> None:
    """Register the callbacks of the table: that it is there, its rows, a click on one."""

    @app.callback(Output("tasks-body", "children"), Input("drawn", "data"), prevent_initial_call=True)
    def body(_: bool) -> Any:
        return _tasks_table()

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


def _tasks_table() -> Any:
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
    return table(
        "tasks", columns, _TASKS_HEIGHT, "id", rowModelType="infinite", cacheBlockSize=100, maxBlocksInCache=20
    )
