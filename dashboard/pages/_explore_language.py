"""Explore: a language model on its grid of devices, a block inside one stage, and memory by kind."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from dashboard.figures.device_grid import block_timeline, device_grid, stage_memory
from dashboard.figures.style import message
from dashboard.frame.cards import card, graph
from dashboard.state.configuration import Configuration
from dashboard.state.device_grid import block_in, grid_of
from dashboard.state.hardware import sequence_length
from dashboard.state.store import Store

_HIDDEN = {"display": "none"}


def add(app: Dash, store: Store) -> None:
    """Register the callbacks of the card."""

    @app.callback(
        Output("grid-card", "style"),
        Output("grid-words", "children"),
        Output("grid-graph", "figure"),
        Output("block-graph", "figure"),
        Output("stage-memory-graph", "figure"),
        Input("configuration", "data"),
        Input("selection", "data"),
        prevent_initial_call=True,
    )
    def draw(query: str | None, selection: dict[str, Any] | None) -> tuple[Any, ...]:
        outcome = store.at_hand(store.read(query)[0]) if query else None
        if outcome is None or not sequence_length(outcome.profile):
            return _HIDDEN, *((no_update,) * 4)
        if outcome.run is None or outcome.cluster is None:
            return {}, "", *((message("no run"),) * 3)
        run, plan = outcome.run, outcome.run.plan
        grid = grid_of(outcome.profile, plan)
        if grid is None:
            why = f"The plan of {plan.strategy} is no grid of data, tensor and pipeline: see the partition below."
            return _HIDDEN, why, *((no_update,) * 3)
        device = (selection or {}).get("device") or 0
        stage = grid.stage_of(device)
        block = block_in(outcome.profile, grid.layers[stage])
        name = outcome.cluster.devices[device].name
        layers = f"layers {block[0] + 1} to {block[-1] + 1}" if block else "no block"
        words = (
            f"{grid.words}, {plan.microbatches} micro-batches, {plan.schedule}. The block: {layers} on {name} in "
            f"stage {stage + 1}, micro-batch {plan.microbatches // 2 + 1} of {plan.microbatches} (click another)."
        )
        return (
            {},
            words,
            device_grid(run, outcome.cluster, grid),
            block_timeline(run, device, block),
            stage_memory(run, grid),
        )

    @app.callback(
        Output("selection", "data", allow_duplicate=True),
        Input("grid-graph", "clickData"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def select(click: Any, query: str | None) -> Any:
        return no_update if not click else {"device": click["points"][0]["customdata"][0], "query": query}


def grid_card(store: Store, now: Configuration) -> Any:
    """The card; other networks than those over sequences go without."""
    body = [
        html.Div(id="grid-words", className="figure-note"),
        dmc.SimpleGrid([
            _part("Grid of devices", graph("grid-graph", 190, "Stages, replicas and tensor ranks")),
            _part("One block inside a stage", graph("block-graph", 190, "What one device does in one block")),
            _part("Peak memory by kind", graph("stage-memory-graph", 190, "Peak memory of each stage by kind")),
        ], cols={"base": 1, "lg": 3}, spacing="sm"),
    ]  # fmt: skip
    framed = card("grid-card", "Data × tensor × pipeline", body, formats=())
    framed.style = {} if sequence_length(store.profiles.get(store.resolved(now).profile)) else _HIDDEN
    return framed


def _part(title: str, figure: Any) -> Any:
    return html.Div([html.H3(title, className="card-title"), figure])
