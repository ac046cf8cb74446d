"""Explore: the figures, those of a language model among them, and one selection that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import Dash, Input, Output, State, html

from dashboard.figures.device_grid import block_timeline, device_grid
from dashboard.figures.devices import breakdown, layer_balance, load_balance, memory
from dashboard.figures.network import link_use, topology, traffic_matrix
from dashboard.figures.style import Figure, message
from dashboard.frame.cards import beside, card, plot
from dashboard.frame.panels import add_panel, as_html, effect
from dashboard.pages._explore_words import device_detail, layer_detail, task_detail
from dashboard.state.configuration import Configuration
from dashboard.state.device_groups import block_in, device_groups, grid_of, slowest
from dashboard.state.measures import sequence_length
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from simulator.run import Run

MACHINE = ("balance-graph", "traffic-graph", "split-graph", "memory-graph", "topology-graph", "links-graph")
_HIDDEN = {"display": "none"}


def add(app: Dash, store: Store) -> None:
    """Register the callbacks of the figures and of the selection."""
    _add_figures(app, store)
    _add_selection(app, store)


def _add_figures(app: Dash, store: Store) -> None:
    """Two requests, one of each tab: the page draws what is seen, and of that what has changed."""

    def at_hand(query: str) -> Outcome:
        return store.at_hand(store.read(query)[0])

    def answer(sent: Mapping[str, Any]) -> dict[str, Any]:
        """sent: query, base and selection."""
        query, selection = sent["query"], sent.get("selection") or {}
        outcome = at_hand(query)
        drawn = grid_panel(outcome, selection)
        detail = _detail(outcome, outcome.run, selection, query) if outcome.run else None
        return {**drawn, "html": {**drawn["html"], "detail": as_html(detail)}}

    def machine(sent: Mapping[str, Any]) -> dict[str, Any]:
        """sent: query, base, selection, and the views `by`, `phase`, `scale` and `split`."""
        selection = sent.get("selection") or {}
        outcome, baseline = at_hand(sent["query"]), at_hand(sent["base"]) if sent.get("base") else None
        if outcome.run is None or outcome.cluster is None:
            return {"figures": dict.fromkeys(MACHINE, message(outcome.undrawn))}
        run, cluster, group = outcome.run, outcome.cluster, selection.get("group")
        before = baseline.run if baseline else None
        phase = None if sent["phase"] == "all" else sent["phase"]
        balance = (
            load_balance(run, cluster, before, selection.get("device"), group)
            if sent["by"] == "device"
            else layer_balance(run, cluster, selection.get("layer"))
        )
        drawn = (
            balance, traffic_matrix(run, cluster, phase, sent["scale"] == "log", group),
            _split(outcome, baseline, sent["split"]), memory(run, cluster, before, group),
            topology(run, cluster, group), link_use(run, cluster),
        )  # fmt: skip
        return {"figures": dict(zip(MACHINE, drawn, strict=True))}

    add_panel(app.server, "answer", answer)
    add_panel(app.server, "machine", machine)
    views = [Input(name, "value") for name in ("balance-by", "phase", "scale", "split-by")]
    effect(app, "views", *views)


def _add_selection(app: Dash, store: Store) -> None:
    @app.callback(
        Output("selection", "data"),
        Input("find-layer", "value"),
        State("configuration", "data"),
        prevent_initial_call=True,
    )
    def find(layer: str | None, query: str) -> Any:
        return {"layer": int(layer) if layer else None, "query": query}

    effect(app, "highlight", Input("selection", "data"))


def _detail(outcome: Outcome, run: Run, selection: Mapping[str, Any], query: str) -> Any:
    """Details of the selection; a task's number has no meaning in another run."""
    task, layer, device = (selection.get(part) for part in ("task", "layer", "device"))
    if task is not None and task < len(run.graph) and selection.get("query") == query:
        return task_detail(outcome, task)
    if layer is not None and layer < len(outcome.profile.layers):
        return layer_detail(run, layer)
    return device_detail(run, device) if device is not None and device < len(run.report.devices) else None


def _split(outcome: Outcome, baseline: Outcome | None, by: str) -> Figure:
    assert outcome.run is not None and outcome.cluster is not None and outcome.shares is not None
    if by == "device":
        groups = device_groups(outcome.cluster, servers=False)
        shown = slowest(groups, outcome.run.report)
        return breakdown([(group.name, outcome.shares.devices[i]) for group, i in zip(groups, shown, strict=True)])
    before = baseline.shares if baseline else None
    return breakdown([*([("baseline", before.total)] if before else []), ("now", outcome.shares.total)])


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
