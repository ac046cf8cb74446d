"""Explore: a language model on its grid of devices, a block inside one stage, and memory by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import html

from dashboard.figures.device_grid import block_timeline, device_grid
from dashboard.figures.memory import memory
from dashboard.figures.style import message
from dashboard.frame.cards import beside, card, plot
from dashboard.frame.panels import as_html
from dashboard.state.configuration import Configuration
from dashboard.state.device_grid import block_in, grid_of
from dashboard.state.hardware import sequence_length
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store

_HIDDEN = {"display": "none"}


def grid_panel(outcome: Outcome, selection: Mapping[str, Any]) -> dict[str, Any]:
    """What the card shows of an outcome, and whether it is hidden."""
    if not sequence_length(outcome.profile):
        return {"hidden": {"grid-card": True}, "html": {}, "figures": {}}
    done = outcome.run or outcome.counted
    if done is None or outcome.cluster is None:
        figures = dict.fromkeys(("grid-graph", "block-graph", "stage-memory-graph"), message(outcome.undrawn))
        return {"hidden": {"grid-card": False}, "html": {"grid-words": ""}, "figures": figures}
    plan = done.plan
    grid = grid_of(outcome.profile, plan)
    if grid is None:
        return {"hidden": {"grid-card": True}, "html": {}, "figures": {}}
    device = min(selection.get("device") or 0, len(outcome.cluster.devices) - 1)
    stage = grid.stage_of(device)
    block = block_in(outcome.profile, grid.layers[stage])
    name = outcome.cluster.devices[device].name
    layers = f"layers {block[0] + 1} to {block[-1] + 1}" if block else "no block"
    parts = "1 micro-batch" if plan.microbatches == 1 else f"{plan.microbatches} micro-batches"
    words = f"{grid.words}, {parts}, {plan.schedule}."
    if outcome.run:
        words += (
            f" The block: {layers} on {name} in stage {stage + 1}, micro-batch {plan.microbatches // 2 + 1} of "
            f"{plan.microbatches} (click another)."
        )
    elif outcome.counted and not outcome.counted.early:
        words += " Timeline, partition and machine are drawn of steps of fewer tasks."
    figures = {
        "grid-graph": device_grid(done, outcome.cluster, grid),
        "block-graph": block_timeline(outcome.run, device, block) if outcome.run else message(outcome.undrawn),
        "stage-memory-graph": memory(done, outcome.cluster, groups=grid.stages),
    }
    return {"hidden": {"grid-card": False}, "html": {"grid-words": as_html(words)}, "figures": figures}


def grid_card(store: Store, now: Configuration) -> Any:
    """The card; other networks than those over sequences go without."""
    body = [
        html.Div(id="grid-words", className="figure-note"),
        beside([
            _part("Grid of devices", plot("grid-graph", 190, "Stages, replicas and tensor ranks")),
            _part("One block inside a stage", plot("block-graph", 190, "What one device does in one block")),
            _part("Peak memory by kind", plot("stage-memory-graph", 190, "Peak memory of each stage by kind")),
        ]),
    ]  # fmt: skip
    framed = card("grid-card", "Data × tensor × pipeline", body, formats=())
    framed.style = {} if sequence_length(store.profile(now)) else _HIDDEN
    return framed


def _part(title: str, figure: Any) -> Any:
    return html.Div([html.H3(title, className="card-title"), figure])
