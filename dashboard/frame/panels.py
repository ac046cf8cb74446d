"""Panels that the page fetches and fills in by itself, because every component of Dash that is on a page costs a
millisecond at each change of any other: numbers, tables and words come as HTML, figures as Plotly's JSON.
And callbacks that run in the browser: functions of assets/page.js."""

from __future__ import annotations

import re
import select
import socket
import traceback
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from dash import ClientsideFunction, Output, State
from dash.development.base_component import Component
from flask import Flask, Response, request
from plotly.io.json import to_json_plotly

from simulator.errors import ShardscopeError

UNUSABLE = "The page sent something that the server could not use; reload the page."
_NAMES = {"className": "class", "colSpan": "colspan", "tabIndex": "tabindex"}
_EMPTY = {"img", "br"}


def add_panel(server: Flask, name: str, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """POST /panel/<name>: JSON in, JSON out; an error comes as `toasts`, a list of notifications."""

    def view() -> Response:
        sent = request.get_json()
        try:
            content = answer(sent)
        except Exception as error:  # whatever a value made by hand leads to
            content = {"toasts": [failure(error)], "failed": True}
        return Response(to_json_plotly(content), mimetype="application/json")

    server.add_url_rule(f"/panel/{name}", f"panel-{name}", view, methods=["POST"])


def hung_up() -> bool:
    """Whether nobody waits for the answer to this request any more: its connection is closed at the other end."""
    connection = request.environ.get("werkzeug.socket")
    if connection is None:
        return False
    try:
        readable = select.select([connection], [], [], 0)[0]
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):  # closed at this end, too
        return True


def toast(title: str, message: str, color: str = "red") -> dict[str, Any]:
    """A notification as the container takes it."""
    return {"action": "show", "title": title, "message": message, "color": color, "autoClose": 9000}


def failure(error: Exception) -> dict[str, Any]:
    """Why something failed; what the user could not have caused is also printed where the server runs."""
    if isinstance(error, ShardscopeError):
        return toast("That does not work", str(error))
    traceback.print_exception(error)
    return toast("Something went wrong", UNUSABLE)


def as_html(part: Any) -> str:
    """Components of dash.html as text; everything in them is escaped. Raises TypeError for other components."""
    if part is None:
        return ""
    if isinstance(part, list | tuple):
        return "".join(map(as_html, part))
    if not isinstance(part, Component):
        return escape(str(part))
    values = part.to_plotly_json()  # type: ignore[no-untyped-call]
    if values["namespace"] != "dash_html_components":
        raise TypeError(f"{values['type']} is no HTML element")
    tag = values["type"].lower()
    inside = values["props"].pop("children", None)
    written = {_NAMES.get(name, name): value for name, value in values["props"].items() if value is not None}
    attributes = "".join(f' {name}="{_text(value)}"' for name, value in written.items())
    return f"<{tag}{attributes}>" + ("" if tag in _EMPTY else f"{as_html(inside)}</{tag}>")


def _text(value: Any) -> str:
    if isinstance(value, dict):  # a style
        dashed = {re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", name): each for name, each in value.items()}
        value = ";".join(f"{name}:{setting}" for name, setting in dashed.items())
    return escape(str(value), quote=True)


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
