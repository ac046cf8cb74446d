"""Compare: the baseline and the present configuration on one time axis, and everything that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, dcc, html

from dashboard.cards import aria, card, graph, legend, plain_table
from dashboard.clientside import effect
from dashboard.comparison import Row, results, settings
from dashboard.configuration import Configuration
from dashboard.figures.breakdown import breakdown
from dashboard.figures.swimlanes import swimlanes
from dashboard.measures import shares
from dashboard.shell import Page
from dashboard.store import Outcome, Store


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    effect(app, "pair", Input("pair", "data"))

    def content(now: Configuration, baseline: Configuration | None, own: Mapping[str, str]) -> Any:
        before = store.outcome(baseline or replace(now, strategy="data", microbatches=None))
        return _page(before, store.outcome(now), pinned=baseline is not None)

    return content


def _page(before: Outcome, after: Outcome, *, pinned: bool) -> Any:
    note = "" if pinned else "No baseline is pinned; this is data parallelism. Pin another one on Explore."
    both = [("Baseline", before), ("Now", after)]
    shown = [{"query": one.configuration.query() if one.run else None, "message": one.reason} for _, one in both]
    changed = settings(before.configuration, after.configuration)
    split = graph("both-split-graph", 230, "Device time by use")
    return html.Main(
        dmc.Stack([
            html.H1(f"{_name(before)} against {_name(after)}", className="page-title"),
            html.Div(note, className="figure-note"),
            dcc.Store(id="pair", data=shown),
            card("pair-card", "Timelines on one axis", [_timeline(i, *one) for i, one in enumerate(both)],
                 controls=[legend()], formats=()),
            dmc.SimpleGrid([
                card("settings", "What was changed", [_table(changed)], formats=()),
                card("results", "What became of it", [_table(results(before, after))], formats=()),
            ], cols={"base": 1, "lg": 2}, spacing="sm"),
            card("both-split", "Where the step goes", [_with(split, _split(both))]),
            *[_partition(i, *one) for i, one in enumerate(both)],
        ], gap="sm"),
        className="page",
    )  # fmt: skip


def _timeline(number: int, title: str, one: Outcome) -> Any:
    return html.Div([
        html.H3(f"{title}: {_name(one)}", className="card-title"),
        html.Div(
            id=f"timeline-{number}", className="timeline", tabIndex=0, role="application",
            **aria(f"Timeline of {title.lower()}; W, A, S, D move both timelines"), **_group(),
        ),
    ])  # fmt: skip


def _partition(number: int, title: str, one: Outcome) -> Any:
    if one.run is None or one.cluster is None:
        return dmc.Alert(one.reason, title=f"{title} cannot run", color="red", variant="light")
    figure = swimlanes(one.run, one.profile, one.cluster)
    body = _with(graph(f"lanes-{number}-graph", 240, f"Partition of {title.lower()}"), figure)
    return card(f"lanes-{number}", f"Partition, {title.lower()}", [body])


def _split(both: Sequence[tuple[str, Outcome]]) -> Any:
    rows = [(title, shares(one.run, one.cluster).total) for title, one in both if one.run and one.cluster]
    return breakdown(rows)


def _table(rows: Sequence[Row]) -> Any:
    if not rows:
        return html.Div("nothing", className="figure-note")
    changes = any(row.change for row in rows)
    titles = ("what", "baseline", "now", *(["change"] if changes else []))
    return plain_table(titles, [
        [row.name, row.before, row.after, *([html.Span(row.change, className=f"kpi-change {row.tone}")] * changes)]
        for row in rows
    ])  # fmt: skip


def _with(framed: Any, figure: Any) -> Any:
    """A framed graph that shows `figure` from the start."""
    framed.children.figure = figure
    return framed


def _group() -> dict[str, Any]:
    return {"data-group": "pair"}


def _name(one: Outcome) -> str:
    now = one.configuration
    return f"{now.strategy} on {now.devices} × {now.cluster}"
