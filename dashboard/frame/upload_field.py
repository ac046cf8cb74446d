"""A field to drop a file on, its callback, and the message about a file that is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboard.state import uploads
from simulator.errors import InputError


def drop(name: str, what: str, accept: str, *, brief: bool = False) -> Any:
    """A field to drop a file on; `what` it takes, by the endings in `accept`. brief: one line of small print.

    The browser passes on whatever is dropped: what it would refuse by its ending it refuses without a word.
    """
    label: dict[str, Any] = {"data-label": f"{what} file ({accept})"}
    before, link = ("or ", f"open {what} file") if brief else (f"Drop {what} ({accept}) here or ", "choose one")
    field = dcc.Upload(
        html.Div([before, html.U(link)], className="drop"),
        id=name, max_size=uploads.MOST_UPLOAD_BYTES, multiple=False,
    )  # fmt: skip
    return html.Div(field, className="drop-field", **label)


def on_upload(
    app: Dash,
    name: str,
    outputs: Sequence[Output],
    keep: Callable[[bytes, str], tuple[Any, ...]],
    refuse: Callable[[InputError], Any],
) -> None:
    """Let a file dropped on field `name` set `outputs` to what `keep` makes of its content and file name.

    Where `keep` raises InputError, nothing is set but the last output: to what `refuse` says of the error.
    """

    @app.callback(*outputs, Input(name, "contents"), State(name, "filename"), prevent_initial_call=True)
    def upload(contents: str | None, filename: str | None) -> tuple[Any, ...]:
        if contents is None:
            return (no_update,) * len(outputs)
        try:
            return keep(uploads.content(contents), filename or "upload")
        except InputError as error:
            return *((no_update,) * (len(outputs) - 1)), refuse(error)


def refused(error: Exception, title: str, expected: str) -> Any:
    """What to say of an upload that is not what it should be."""
    more = html.Div(f"Expected: {expected}.", className="figure-note")
    return dmc.Alert([html.Div(str(error)), more], title=title, color="red", variant="light")
