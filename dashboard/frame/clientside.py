"""Callbacks that run in the browser: functions of assets/page.js."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Output, State


def in_browser(app: Any, function: str, outputs: Any, *inputs: Any) -> None:
    """Let `function` compute `outputs`."""
    app.clientside_callback(ClientsideFunction("page", function), outputs, *inputs)


def keep_in_address(app: Any, *inputs: Any) -> None:
    """Let the address of a page hold the values of `inputs` under the names that the page has in `own-names`."""
    outputs = Output("address", "data", allow_duplicate=True)
    app.clientside_callback(
        ClientsideFunction("page", "own"), outputs, *inputs, State("own-names", "data"), State("address", "data"),
        prevent_initial_call="initial_duplicate",
    )  # fmt: skip


def effect(app: Any, function: str, *inputs: Any) -> None:
    """Let `function` do something in the browser at first and whenever an input changes; it returns nothing."""
    outputs = Output("nothing", "data", allow_duplicate=True)
    app.clientside_callback(
        ClientsideFunction("page", function), outputs, *inputs, prevent_initial_call="initial_duplicate"
    )
