"""Tables that sort: their frame, and the one maker of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag


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
