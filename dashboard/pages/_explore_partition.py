"""Explore: the partition figure. Its drawings come as SVG (frame/routes.py); here are its head, nets and candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import Dash, Input, Output, State, dcc, html
from dash.exceptions import PreventUpdate

from dashboard.figures.candidates import candidates
from dashboard.frame.cards import aria, card, graph
from dashboard.frame.clientside import effect
from dashboard.state.alternatives import alternatives
from dashboard.state.columns import columns_of
from dashboard.state.simulating import Glance
from dashboard.state.store import Store
from dashboard.words.partition import NetLine, head_figures, head_sentence, heaviest_nets
from simulator.units import format_bytes


def add(app: Dash, store: Store) -> None:
    """Register the callbacks of the partition figure."""
    effect(app, "partition", Input("shown", "data"), Input("selection", "data"))

    @app.callback(
        Output("partition-head", "children"),
        Output("nets", "children"),
        Output("candidates-graph", "figure"),
        Input("strategies-ready", "data"),
        State("tab", "data"),
        prevent_initial_call=True,
    )
    def describe(ready: list[str] | None, tab: str) -> tuple[Any, ...]:
        if not ready:
            raise PreventUpdate
        now = store.resolved(store.read(ready[0])[0])
        outcome = store.at_hand(now)
        if outcome.run is None or outcome.flows is None or outcome.cluster is None:
            return None, None, candidates((), {}, "")
        glances = {option.strategy: store.desk.glance(option) for option in alternatives(now, outcome.profile)}
        known = {name: glance for name, glance in glances.items() if glance is not None and glance.ran}
        shown = known.get(now.strategy) or store.glance(now)
        columns = columns_of(outcome.profile, outcome.run.plan)
        sentence = head_sentence(columns, shown, known.get("data"), outcome.cluster.workers)
        nets = heaviest_nets(outcome.profile, outcome.flows)
        return (
            _head(shown, known.get("data"), sentence),
            _nets(nets),
            candidates(outcome.candidates, known, now.strategy),
        )


def partition_card() -> Any:
    """The card with all of its parts."""
    return card(
        "partition",
        "Partition: how each block is split, and what crosses",
        [
            html.Div(id="partition-head", className="partition-head"),
            html.Div(
                [html.Div(id=f"{name}-drawing", className="drawing") for name in ("partition", "strategies")],
                className="partition-scroll", tabIndex=0, role="region", **aria("Partition of the network"),
            ),
            html.Div([
                html.Div([html.H3("Ten heaviest nets (click one to light it up)", className="card-title"),
                          html.Div(id="nets", className="wide-table")]),
                html.Div([html.H3("Plans tried: bytes against the step", className="card-title"),
                          graph("candidates-graph", 270, "Bytes of each plan tried against its step")]),
            ], className="partition-below"),
            dcc.Store(id="strategies-ready"),
        ],
        formats=("png", "svg", "csv"),
    )  # fmt: skip


def _head(now: Glance, data: Glance | None, sentence: str) -> list[Any]:
    figures = [
        html.Div([html.Div(name, className="kpi-label"), html.Div(value, className="kpi-value"),
                  html.Div(note, className="figure-note")])
        for name, value, note in head_figures(now, data)
    ]  # fmt: skip
    return [html.P(sentence, className="partition-sentence"), html.Div(figures, className="partition-figures")]


def _nets(lines: Sequence[NetLine]) -> Any:
    if not lines:
        return html.Div("Nothing crosses between devices.", className="figure-note")
    titles = ("producer", "readers", "nets", "λ − 1", "bytes", "share")
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in titles]))
    return html.Table([head, html.Tbody([_net(line) for line in lines])], className="plain-table nets")


def _net(line: NetLine) -> Any:
    """A row; partition.js lights its layers up."""
    kind = "gradient" if line.gradients else "cut"
    layers: dict[str, Any] = {"data-layers": " ".join(map(str, line.layers))}
    name = html.Button([html.I(className=f"mark {kind}"), line.producer], className="link pick", **layers)
    bar = html.Div(style={"width": f"{max(line.share * 100, 1):.0f}px"}, className=f"share {kind}")
    return html.Tr([
        html.Th(name, scope="row"), html.Td(line.readers), html.Td(f"{line.nets}"), html.Td(f"{line.connectivity}"),
        html.Td(format_bytes(line.bytes)), html.Td(html.Div([bar, f"{line.share:.0%}"], className="share-cell")),
    ])  # fmt: skip
