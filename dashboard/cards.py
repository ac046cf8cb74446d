"""The frame of a card: a title, its controls, an export menu, the figure."""

from __future__ import annotations

from typing import Any, cast

import dash_mantine_components as dmc
from dash import dcc, html

from dashboard.figures.style import BACKWARD, CONFIG, FORWARD, MESSAGE, REDUCE, UPDATE, WEIGHT

KINDS = {"forward": FORWARD, "backward": BACKWARD, "weights": WEIGHT, "optimizer": UPDATE,
         "point-to-point": MESSAGE, "all-reduce": REDUCE}  # fmt: skip


LIVE: dict[str, Any] = {"aria-live": "polite"}


def aria(label: str) -> dict[str, Any]:
    """The attribute that names an element for a screen reader."""
    return {"aria-label": label}


def _export(form: str, name: str) -> dict[str, Any]:
    return {"data-export": form, "data-card": name}


def card(
    name: str,
    title: str,
    body: list[Any],
    *,
    controls: list[Any] | None = None,
    formats: tuple[str, ...] = ("png", "svg", "csv"),
) -> Any:
    """A card with id `name`; `formats` are those of its export menu."""
    head = dmc.Group(
        [
            html.H2(title, className="card-title"),
            dmc.Group([*(controls or []), _menu(name, title, formats)], gap=6),
        ],
        justify="space-between",
        mb=6,
    )
    return dmc.Paper([head, *body], id=name, withBorder=True, p="sm", radius="md")


def graph(name: str, height: int, label: str) -> Any:
    """A Plotly figure of fixed height, described for a screen reader by `label`."""
    return html.Div(
        dcc.Graph(
            id=name, config=cast(Any, CONFIG), style={"height": f"{height}px"}, figure={"data": [], "layout": {}}
        ),
        role="img",
        **aria(label),
    )


def legend() -> Any:
    """The colours of tasks."""
    return dmc.Group(
        [html.Span([html.I(style={"background": colour}), name], className="legend") for name, colour in KINDS.items()],
        gap=10,
    )


def menu(label: Any, items: list[Any], name: str) -> Any:
    """A list that unfolds; page.js folds it when the user is done with it."""
    return html.Details([html.Summary(label, **aria(name)), html.Div(items, className="menu-items")], className="menu")


def _menu(name: str, title: str, formats: tuple[str, ...]) -> Any:
    if not formats:
        return None
    items = [html.Button(f"Save as {one.upper()}", className="menu-item", **_export(one, name)) for one in formats]
    return menu("⤓", items, f"Export {title}")
