"""Rows of a sweep as files for other programs, CSV and Parquet, and charts as HTML that needs no network, or PNG."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator import files
from simulator.errors import needing
from simulator.sweep.chart import Chart


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """`rows` below a header line, the columns of all in the order in which they come; what is empty stays empty."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write `rows` as a Parquet file. Raises OSError, or MissingExtraError when pyarrow is absent."""
    with needing("pyarrow", "Parquet", "CSV needs nothing"):
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    content = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), content)
    files.write_bytes_atomic(path, content.getvalue())


def write_html(figures: Iterable[dict[str, Any]], path: Path) -> None:
    """Write Plotly figures, one below the other, as one HTML file that needs no network. Raises OSError."""
    import plotly.graph_objects

    parts: list[str] = []
    for drawn in figures:
        parts.append(plotly.graph_objects.Figure(drawn).to_html(include_plotlyjs=not parts, full_html=False))
    files.write_text_atomic(path, '<!doctype html><meta charset="utf-8"><title>Shardscope</title>' + "".join(parts))


def figure(chart: Chart) -> dict[str, Any]:
    """`chart` as a plain Plotly figure."""
    traces = [
        {
            "type": "scatter",
            "name": series.name,
            "x": list(series.x),
            "y": list(series.y),
            "mode": "lines+markers" if series.joined else "markers",
        }
        for series in chart.series
    ]
    axes = {
        f"{axis}axis": {"title": {"text": column}, "type": "log" if log else "linear", "exponentformat": "SI"}
        for axis, column, log in (("x", chart.x, chart.x_log), ("y", chart.y, chart.y_log))
    }
    return {"data": traces, "layout": {"title": {"text": chart.title}, **axes}}


def write_png(chart: Chart, path: Path) -> None:
    """Write `chart` as a picture. Raises OSError, or MissingExtraError when matplotlib is absent."""
    with needing("matplotlib", "PNG", "HTML needs nothing"):
        from matplotlib.figure import Figure
    picture = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes = picture.subplots()
    for series in chart.series:
        axes.plot(series.x, series.y, "o-" if series.joined else "o", label=series.name, markersize=4)
    axes.set(title=chart.title, xlabel=chart.x, ylabel=chart.y)
    axes.set(xscale="log" if chart.x_log else "linear", yscale="log" if chart.y_log else "linear")
    axes.grid(alpha=0.3)
    axes.legend()
    picture.savefig(path)
