"""Sweep: what stands on the page before a sweep runs: the form, the figures' cards, the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

import partitioners
from dashboard.frame.cards import LIVE, beside, card, choice, column, graph, page, table
from dashboard.state.configuration import Configuration
from dashboard.state.inventory import label
from dashboard.state.sweeps import PARAMETERS
from dashboard.words.sweep import QUANTITIES, axis_title

NONE = "none"
FIRST = "inter_bandwidth_bytes_per_s"
"""The value of the second parameter where one is swept."""


FORM = ("strategies", "x", "x-values", "y", "y-values")
"""The fields that say what is swept, which stand in the address."""


def sweep_page(
    now: Configuration, own: Mapping[str, str], usual: Sequence[Configuration], examples: Mapping[str, str]
) -> Any:
    """The whole page; `now` is what it sweeps around. own: fields of FORM in its address. usual: the strategies.
    examples: values by parameter."""
    quantities = [{"value": name, "label": each.title} for name, each in QUANTITIES.items()]
    quantity = choice("sweep-quantity", "Quantity", quantities, "step_s")
    against = choice("sweep-against", "Step against", quantities, "peak_memory_bytes")
    return page("Sweep", [
        html.Div(f"Everything else stays as on Explore: {now.machine}, {label(now.profile)}.", className="figure-note"),
        dcc.Store(id="sweep", storage_type="session"),
        dcc.Store(id="sweep-own", storage_type="session"),
        dcc.Store(id="sweep-brush"),
        dcc.Store(id="sweep-seen"),
        dcc.Store(id="sweep-base", data=now.query()),
        dcc.Interval(id="sweep-tick", interval=700),
        _form(own, [each.strategy for each in usual], examples),
        html.Div(id="sweep-problem", role="alert"),
        dmc.Group([html.Div(id="sweep-progress", **LIVE), html.Div(id="sweep-files"),
                   html.Div(id="sweep-explore", **LIVE)], gap="lg"),
        html.Div(id="sweep-list", className="chips"),
        html.P(id="sweep-answer", className="partition-sentence", **LIVE),
        beside([
            card("sweep-over", "Over what was swept", [graph("sweep-over-graph", 320, "Quantity over parameters")],
                 controls=[quantity]),
            card("sweep-pareto", "Step against", [graph("sweep-pareto-graph", 320, "Trade-off of two quantities")],
                 controls=[against]),
        ]),
        card("sweep-parallel", "All of it: parallel coordinates (drag a box to pick lines, double click for all)",
             [graph("sweep-parallel-graph", 300, "Parallel coordinates of all points")], formats=("png", "svg")),
        card("sweep-table", "Points (click one to explore it)",
             [table("sweep-rows", columns_of_table(()), 340, "id")], formats=()),
    ], names=FORM)  # fmt: skip


def _form(own: Mapping[str, str], strategies: Sequence[str], examples: Mapping[str, str]) -> Any:
    known = partitioners.strategies()
    named = [name for name in own.get("strategies", "").split(",") if name in known]
    x, y = (own[axis] if own.get(axis) in PARAMETERS else other for axis, other in (("x", FIRST), ("y", NONE)))
    names = [{"value": name, "label": axis_title(name)} for name in PARAMETERS]
    plain = {"w": 170, "size": "xs"}
    fields = [
        dmc.MultiSelect(
            id="sweep-strategies", label="Strategies", data=list(known),
            value=named or list(dict.fromkeys(strategies)), w=250, size="xs",
        ),
        choice("sweep-x", "Parameter", names, x, 170),
        dmc.TextInput(id="sweep-x-values", label="Values", value=own.get("x-values", examples[x])[:200], **plain),
        choice("sweep-y", "Second parameter", [NONE, *names], y, 170),
        dmc.TextInput(id="sweep-y-values", label="Its values", value=own.get("y-values", examples.get(y, ""))[:200],
                      **plain),
        dmc.Button("Start", id="sweep-start", size="xs"),
        dmc.Button("Cancel", id="sweep-cancel", size="xs", variant="default", disabled=True),
        dmc.Button("Resume", id="sweep-resume", size="xs", variant="default", disabled=True),
    ]  # fmt: skip
    return dmc.Paper(dmc.Group(fields, align="end", gap="sm"), withBorder=True, p="sm", radius="md")


def columns_of_table(swept: Sequence[str], rows: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The table's columns: the point, what was swept, the quantities that any of the rows has, and how it went."""
    known = [name for name in QUANTITIES if not rows or any(row.get(name) is not None for row in rows)]
    step, *others = [
        column(name, axis_title(name), 108, QUANTITIES[name].decimals, wrapHeaderText=True, autoHeaderHeight=True)
        for name in ("step_s", *(name for name in known if name != "step_s"))
    ]
    return [
        column("number", "point", 72),
        column("strategy", "strategy", 100),
        *[column(name, axis_title(name), 135) for name in swept if name != "strategy"],
        step,
        column("expected", f"90% sure of ({QUANTITIES['step_s'].unit})", 175, sortable=False),
        *others,
        column("status", "status", 90, flex=1, minWidth=90, tooltipField="status"),
    ]
