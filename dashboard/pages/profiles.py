"""Profiles: what was measured, on what, how it scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html

from dashboard.figures.layers import layer_times, scaling
from dashboard.figures.style import Figure
from dashboard.frame.cards import aria, card, choice, column, facts, graph, page, table
from dashboard.frame.controls import profile_options
from dashboard.frame.shell import Page
from dashboard.state.configuration import VERSION, Configuration
from dashboard.state.store import Store
from simulator.units import format_bytes, format_time
from simulator.workload import Layer, Profile

COLUMNS: tuple[tuple[dict[str, Any], Callable[[Layer], Any]], ...] = (
    (column("layer", "layer", 190, flex=1, minWidth=190, tooltipField="layer"), lambda layer: layer.name),
    (column("kind", "kind", 120), lambda layer: layer.kind),
    (
        column("inputs", "inputs", 190, tooltipField="inputs"),
        lambda layer: ", ".join(layer.inputs) or "the training data",
    ),
    (column("shape", "shape", 160), lambda layer: " × ".join(map(str, layer.output_shape))),
    (column("forward_ms", "forward (ms)", 130, decimals=3), lambda layer: layer.forward_s * 1e3),
    (column("backward_ms", "backward (ms)", 145, decimals=3), lambda layer: layer.backward_s * 1e3),
    (column("parameters_mib", "parameters (MiB)", 165, decimals=3), lambda layer: layer.parameter_bytes / 2**20),
    (column("output_mib", "output (MiB)", 125, decimals=3), lambda layer: layer.output_bytes / 2**20),
    (column("saved_mib", "saved (MiB)", 125, decimals=3), lambda layer: layer.saved_bytes / 2**20),
    (column("gflop", "GFLOP", 120, decimals=3), lambda layer: layer.flops / 1e9),
    (column("points", "scaling points", 130, decimals=0), lambda layer: len(layer.scaling)),
)
"""Of the table of layers, and what each shows of one."""


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""

    def shown(key: str, address: Mapping[str, str]) -> Profile:
        """A card as modelled on the machine of the address."""
        return store.profile(replace(store.read(address["query"])[0], profile=key))

    @app.callback(
        Output("provenance", "children"),
        Output("layer-times-graph", "figure"),
        Output("layers", "rowData"),
        Output("scaling-layer", "data"),
        Output("scaling-layer", "value"),
        Output("explore-profile", "href"),
        Input("shown-profile", "value"),
        State("address", "data"),
        prevent_initial_call=False,
    )
    def show(key: str, address: Mapping[str, str]) -> tuple[Any, ...]:
        profile = shown(key, address)
        layers = [{"value": str(i), "label": layer.name} for i, layer in enumerate(profile.layers)]
        longest = max(range(len(layers)), key=lambda i: profile.layers[i].forward_s + profile.layers[i].backward_s)
        rows = [{shown["field"]: read(layer) for shown, read in COLUMNS} for layer in profile.layers]
        href = f"/?{urlencode({'v': VERSION, 'profile': key}, safe='@')}"
        return _provenance(profile), layer_times(profile), rows, layers, str(longest), href

    @app.callback(
        Output("scaling-graph", "figure"),
        Input("scaling-layer", "value"),
        State("shown-profile", "value"),
        State("address", "data"),
        prevent_initial_call=True,
    )
    def scale(layer: str | None, key: str, address: Mapping[str, str]) -> Figure:
        profile = shown(key, address)
        return scaling(profile, min(int(layer or 0), len(profile.layers) - 1))

    return lambda now, baseline, own: _page(store, now)


def _page(store: Store, now: Configuration) -> Any:
    which = choice("shown-profile", "Profile", profile_options(store), now.profile, 280)
    link = dcc.Link("Explore this profile", id="explore-profile", href="/", className="nav-link")
    layer = dmc.Select(id="scaling-layer", data=[], searchable=True, size="xs", w=190, **aria("Layer"))
    return page("Profiles", [
        dmc.Group([which, link], align="end"),
        html.Div(id="provenance"),
        card("layer-times", "Time by layer", [graph("layer-times-graph", 260, "Time by layer")]),
        card("scaling", "How a layer scales with the batch", [graph("scaling-graph", 260, "Time over samples")],
             controls=[layer]),
        card("layers-card", "Layers", [table("layers", [shown for shown, _ in COLUMNS], 380)], formats=()),
    ])  # fmt: skip


def _provenance(profile: Profile) -> Any:
    whole = f"{format_time(profile.step_s)} measured end to end" if profile.step_s else "whole step not measured"
    values = {
        "model": profile.model,
        "device": profile.device or "unnamed",
        "batch": f"{profile.batch_size} samples, {profile.dtype}",
        "step": f"{whole}; layers add up to {format_time(profile.layers_s)}",
        "parameters": format_bytes(profile.parameter_bytes),
        "layers": f"{len(profile.layers)}",
        "date": profile.date or "unknown",
        "software": ", ".join(f"{name} {version}" for name, version in profile.software.items()) or "unknown",
        "made by": profile.command or "unknown",
        "notes": profile.notes,
    }
    return card("provenance-card", "Where it comes from", [facts(values)], formats=())
