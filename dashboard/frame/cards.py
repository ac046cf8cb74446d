"""The frame of a card: a title, its controls, an export menu, the figure; and tables, plain and sorted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import dcc, html

from dashboard.figures.style import BACKWARD, CONFIG, FORWARD, MESSAGE, REDUCE, UPDATE, WEIGHT, Figure
from dashboard.words.kpis import Kpi

KINDS = {"forward": FORWARD, "backward": BACKWARD, "weights": WEIGHT, "optimizer": UPDATE,
         "point-to-point": MESSAGE, "all-reduce": REDUCE}  # fmt: skip


LIVE: dict[str, Any] = {"aria-live": "polite"}


def aria(label: str) -> dict[str, Any]:
    """The attribute that names an element for a screen reader."""
    return {"aria-label": label}


def marked(**values: object) -> dict[str, Any]:
    """Attributes that the page's scripts read, e.g. data-task."""
    return {f"data-{name}": str(value) for name, value in values.items()}


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


def graph(name: str, height: int, label: str, figure: Figure | None = None) -> Any:
    """A Plotly figure of fixed height, described for a screen reader by `label`; empty until there is one."""
    shown = figure or {"data": [], "layout": {}}
    drawn = dcc.Graph(id=name, config=cast(Any, CONFIG), style={"height": f"{height}px"}, figure=shown)
    return html.Div(drawn, role="img", **aria(label))


def plot(name: str, height: int, label: str) -> Any:
    """The place of a figure that comes with a panel and is drawn by then (assets/plots.js); else as `graph`."""
    style = {"height": f"{height}px"}
    return html.Div(id=name, role="img", style=style, **marked(config=json.dumps(CONFIG)), **aria(label))


def page(title: str, parts: Sequence[Any], choices: Any = None, names: Sequence[str] = ()) -> Any:
    """A page with its title, and choices at the right of that. names: what its address holds (`keep_in_address`)."""
    head = html.H1(title, className="page-title")
    top = dmc.Group([head, choices], justify="space-between", align="end") if choices is not None else head
    return html.Main(
        [dcc.Store(id="own-names", data=list(names)), dmc.Stack([top, *parts], gap="sm")], className="page"
    )


def beside(parts: Sequence[Any], **more: Any) -> Any:
    """Cards (or parts of one) beside each other, below each other where there is no room."""
    return dmc.SimpleGrid(list(parts), cols={"base": 1, "lg": len(parts)}, spacing="sm", **more)


def choice(name: str, label: str, values: Sequence[Any], value: Any, width: int | None = None, **more: Any) -> Any:
    """One of several values, of which there is always one."""
    named = {"label": label} if width else aria(label)
    return dmc.Select(id=name, data=list(values), value=value, w=width, size="xs", allowDeselect=False, **named, **more)


def switch(name: str, label: str, values: Sequence[Any], value: str) -> Any:
    """One of few values, all of which are seen."""
    return dmc.SegmentedControl(id=name, data=list(values), value=value, size="xs", **aria(label))


def drawing(label: str, *names: str) -> Any:
    """The place of drawings that the page fetches (assets/partition.js)."""
    inside = [html.Div(id=f"{name}-drawing", className="drawing") for name in names]
    return html.Div(inside, className="partition-scroll", tabIndex=0, role="region", **aria(label))


def facts(values: Mapping[str, str]) -> Any:
    """A table of names and values; empty values are left out."""
    rows = [html.Tr([html.Th(name, scope="row"), html.Td(value)]) for name, value in values.items() if value]
    return html.Table(html.Tbody(rows), className="plain-table")


def plain_table(titles: Sequence[Any], rows: Sequence[Sequence[Any]], *classes: str) -> Any:
    """A table whose first column names its rows."""
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in titles]))
    body = [html.Tr([html.Th(row[0], scope="row"), *[html.Td(cell) for cell in row[1:]]]) for row in rows]
    return html.Table([head, html.Tbody(body)], className=" ".join(("plain-table", *classes)))


def scrolled(label: str, *classes: str) -> dict[str, Any]:
    """The attributes of a box that scrolls sideways where its table is wider, by keyboard as well."""
    return {"className": " ".join(("wide-table", *classes)), "tabIndex": 0, "role": "region", **aria(label)}


def tiles(kpis: Sequence[Kpi]) -> list[Any]:
    """Numbers with their names."""
    return [
        html.Div(
            [
                html.Div(kpi.label, className="kpi-label", title=kpi.hint),
                html.Div([
                    html.Span(kpi.value, className="kpi-value"),
                    html.Span(kpi.change, className=f"kpi-change {kpi.tone}"),
                ], className="kpi-line"),
                html.Div(kpi.note, className="kpi-note"),
            ],
            className="tile",
        )
        for kpi in kpis
    ]  # fmt: skip


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
    items = [
        html.Button(f"Save as {form.upper()}", className="menu-item", **marked(export=form, card=name))
        for form in formats
    ]
    return menu("⤓", items, f"Export {title}")


def column(field: str, title: str, width: int, decimals: int | None = None, **more: Any) -> dict[str, Any]:
    """A column as the table takes it; with `decimals` one of numbers, whose points stand below each other.

    What is not 0 but would be written as 0 is written as below the smallest number that is not, e.g. "<0.001".
    """
    numbers = {} if decimals is None else _right_aligned(_number(decimals))
    return {"field": field, "headerName": title, "width": width, **numbers, **more}


def _number(decimals: int) -> str:
    """The expression that writes a number with so many decimals."""
    plain = f"d3.format(',.{decimals}f')(params.value)"
    least = f"{10**-decimals:.{decimals}f}"
    small = f"params.value > 0 && params.value < {least} / 2"
    return f"({small}) ? '<{least}' : {plain}" if decimals else plain


def _right_aligned(expression: str) -> dict[str, Any]:
    return {
        "type": "rightAligned",
        "valueFormatter": {"function": f"params.value == null ? '' : ({expression})"},
    }


def share_column(field: str, title: str, width: int, form: str, mark: str = "''", **more: Any) -> dict[str, Any]:
    """A column of shares in per cent: `form` as of d3, behind what the expression `mark` gives."""
    return column(field, title, width) | _right_aligned(f"{mark} + d3.format('{form}')(params.value)") | more


def table(
    name: str, columns: Sequence[dict[str, Any]], height: int | None, row_id: str | None = None, **options: Any
) -> Any:
    """A table with id `name`, `height` pixels high, or as high as its rows; empty until a callback gives it rows.

    row_id: the field of a row that names it, where clicks on rows are answered.
    options: of the grid beside those that all tables have.
    """
    if height is None:
        options["domLayout"] = "autoHeight"
    rows: dict[str, Any] = {} if options.get("rowModelType") == "infinite" else {"rowData": []}
    named = {"getRowId": f"params.data.{row_id}"} if row_id else {}
    model = {"rowModelType": options.pop("rowModelType")} if "rowModelType" in options else {}
    return dag.AgGrid(
        id=name, columnDefs=list(columns), defaultColDef={"sortable": True, "resizable": True},
        dashGridOptions={"rowHeight": 28, "headerHeight": 30, **options}, style={"height": height},
        **rows, **named, **model,
    )  # fmt: skip
