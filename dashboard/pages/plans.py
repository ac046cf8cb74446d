"""Plans: every plan of a model on so many devices, ranked while the page is read; a click explores one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboard.figures.style import Figure, message
from dashboard.figures.sweep import quantity_over_parameters, steps, trade_off
from dashboard.frame.cards import LIVE, beside, card, choice, column, graph, page, share_column, table
from dashboard.frame.shell import Page
from dashboard.state.configuration import DEGREES, RECOMPUTATION, Configuration
from dashboard.state.inventory import label
from dashboard.state.plans import Plans, Ranked, Row
from dashboard.state.store import Store
from dashboard.words.sweep import QUANTITIES, interval
from simulator.units import format_bytes, format_time

ANY = "any"
PARTS = ("data", *DEGREES, "chunks")
"""What a grid is cut into, as its name says it."""
PATIENCE_S = 0.6
"""An answer without news is held back so long, so that the first rows are on the page as soon as they are known."""


def add(app: Dash, store: Store) -> Page:
    """Register the callbacks of this page; returns what shows it."""
    plans = Plans(store)

    def ranked(base: str) -> Ranked:
        return plans.ask(store.read(base)[0])

    @app.callback(
        Output("plans-words", "children"),
        Output("plans-rows", "rowData"),
        Output("plans-steps-graph", "figure"),
        Output("plans-trade-graph", "figure"),
        Output("plans-grid-graph", "figure"),
        Output("plans-tick", "disabled"),
        Output("plans-seen", "data"),
        Input("plans-tick", "n_intervals"),
        Input("plans-fits", "checked"),
        Input("plans-splits", "checked"),
        Input("plans-zero", "value"),
        Input("plans-recomputation", "value"),
        State("plans-base", "data"),
        State("plans-seen", "data"),
        # Asked again before it answered, Dash would drop the answer: a busy server would never be heard.
        running=[(Output("plans-tick", "max_intervals"), 0, -1)],
    )
    def draw(tick: int, fits: bool, splits: bool, zero: str, again: str, base: str, seen: Any) -> tuple[Any, ...]:
        end_s = time.monotonic() + PATIENCE_S
        while True:
            so_far = ranked(base)
            now = [so_far.words, len(so_far.rows), so_far.over, fits, splits, zero, again]
            if now != seen:
                break
            if time.monotonic() > end_s:
                return (no_update,) * 7
            time.sleep(0.03)
        rows = [
            {**row, "title": title(row)} for row in so_far.rows
            if (row["fits"] or not fits) and zero in (ANY, str(row["zero_stage"]))
            and again in (ANY, row["recomputation"])
        ]  # fmt: skip
        rows = best_of_splits(rows) if splits else rows
        running = [row for row in rows if row["fits"]]
        return (
            _words(so_far), [_cells(row) for row in rows], steps(rows), trade_off(rows, "step_s", "peak_memory_bytes"),
            over_degrees(running), so_far.over, now,
        )  # fmt: skip

    @app.callback(
        Output("plans-picked", "children"),
        Input("plans-rows", "cellClicked"),
        Input("plans-seen", "data"),
        State("plans-base", "data"),
    )
    def pick(cell: Any, seen: Any, base: str) -> Any:
        number = int(cell["rowId"]) if cell else 1
        row = next((row for row in ranked(base).rows if row["number"] == number), None)
        return _picked(row) if row else None

    def content(now: Configuration, baseline: Configuration | None, own: Mapping[str, str]) -> Any:
        plans.ask(now)  # it is ranked while the browser draws the page
        return _page(now, now.profile in store.cards)

    return content


def title(row: Row) -> str:
    """The degrees above 1 and what replicas share, e.g. "data 32 × tensor 2, ZeRO-3".

    Those of a measured profile have a name, and a schedule."""
    whole = {"expert": " whole"} if row["expert_tensor"] == 1 < row["tensor"] else {}
    degrees = [f"{name} {row[name]}{whole.get(name, '')}" for name in PARTS if row.get(name, 1) > 1]
    named = " × ".join(degrees) if "data" in row else " ".join([row["strategy"], *degrees])
    zero = f", ZeRO-{row['zero_stage']}" if row["zero_stage"] else ""
    zero += f" in groups of {row['shard_group']}" if row["shard_group"] else ""
    again = "" if row["recomputation"] == "none" else f", recomputes {row['recomputation']}"
    more = "".join(f", {words}" for words in row.get("more", ()))
    return f"{named or '1 device'}{zero}{again}{more}"


def best_of_splits(rows: Sequence[Row]) -> list[Row]:
    """The first of each split: rows that differ in ZeRO, micro-batches and recomputation alone have one."""
    first: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        first.setdefault((row["strategy"], row["expert_tensor"], *(row.get(name) for name in PARTS)), row)
    return list(first.values())


def over_degrees(rows: Sequence[Row]) -> Figure:
    """The shortest step of each pair of tensor and pipeline degrees; along one where the other is always 1."""
    names = [name for name in ("tensor", "pipeline") if any(row[name] > 1 for row in rows)]
    shortest: dict[tuple[int, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["step_s"]):
        shortest.setdefault(tuple(row[name] for name in names), row)
    best = [shortest[degrees] for degrees in sorted(shortest)]
    return quantity_over_parameters(best, names, "step_s") if names else message("no plan with such a degree")


def _words(so_far: Ranked) -> Any:
    """The best plan in a sentence, and what was tried."""
    if so_far.failed:
        return dmc.Alert(so_far.words, title="That cannot be ranked", color="red", variant="light")
    best = so_far.rows[0] if so_far.rows else None
    tried = html.Div(so_far.words + ("." if so_far.over else " …"), className="figure-note")
    if best is None or not best["fits"]:
        return [
            html.P("No plan fits so far." if best else "Bounding every plan …", className="partition-sentence"),
            tried,
        ]
    sure = ""
    if best["step_low_s"] is not None:
        sure = f" (90% sure of {format_time(best['step_low_s'])} to {format_time(best['step_high_s'])})"
    text = (
        f" takes {format_time(best['step_s'])}{sure} with {format_bytes(best['peak_memory_bytes'])} on the fullest "
        f"device, limited by {best['limited']}."
    )
    lead = "Best: " if so_far.over else "Best so far: "
    return [html.P([lead, html.Strong(title(best)), text], className="partition-sentence"), tried]


def _picked(row: Row) -> Any:
    """A plan's link to Explore, and how to launch it."""
    name = f"plan {row['number']}: {title(row)}"
    opens = dcc.Link(f"Explore {name}", href=f"/?{row['query']}", className="nav-link")
    link = opens if row["query"] else f"{name}: only the command line has all of its options"
    command = html.Pre(row["command"], className="mono launch", tabIndex=0) if row["command"] else None
    return [html.Div(link), command]


def _page(now: Configuration, tokens: bool) -> Any:
    """tokens: whether it is a model card, whose plans are counted in tokens."""
    filters = [
        dmc.Switch(id="plans-fits", label="only what fits", checked=True, size="sm"),
        dmc.Switch(id="plans-splits", label="one row a split", checked=False, size="sm"),
        choice("plans-zero", "ZeRO stage", [ANY, "0", "1", "2", "3"], ANY, 130),
        choice("plans-recomputation", "Recomputation", [ANY, *RECOMPUTATION], ANY, 130),
    ]
    return page("Plans", [
        html.Div(f"Every plan of {label(now.profile)} on {now.machine}, by its step; model, machine and batch are "
                 "those of Explore.", className="figure-note"),
        dcc.Store(id="plans-base", data=now.query()),
        dcc.Store(id="plans-seen"),
        dcc.Interval(id="plans-tick", interval=200),
        html.Div(id="plans-words", **LIVE),
        dmc.Group(filters, gap="md", align="end"),
        card("plans-table", "Plans (click one for its command)",
             [_table(tokens), html.Div(id="plans-picked", **LIVE)], formats=()),
        beside([
            card("plans-steps", "The best, with their 90% ranges",
                 [graph("plans-steps-graph", 300, "Steps of the best plans with their 90% ranges")]),
            card("plans-trade", "Step against memory",
                 [graph("plans-trade-graph", 300, "Peak memory of each plan over its step")]),
            card("plans-grid", "Shortest step by degrees",
                 [graph("plans-grid-graph", 300, "Shortest step by tensor and pipeline degree")]),
        ]),
    ])  # fmt: skip


def _table(tokens: bool) -> Any:
    step = QUANTITIES["step_s"]
    columns = [
        column("number", "rank", 70),
        column("title", "plan", 300, flex=1, minWidth=220, wrapText=True, autoHeight=True),
        column("micro", "micro-batch", 130),
        column("step_s", step.title, 115, step.decimals),
        column("expected", f"90% sure ({step.unit})", 190, sortable=False),
        column("per_device_per_s", f"{'tokens' if tokens else 'samples'}/s, device", 155, 0),
        share_column("mfu", "MFU", 80, ".1%", hide=not tokens),
        column("gib", "GiB", 80, 1, headerTooltip="of the fullest device, at its peak"),
        share_column("bubble_ratio", "bubble", 100, ".0%"),
        column("fit", "fits", 100),
    ]
    return table("plans-rows", columns, 340, "id")


def _cells(row: Row) -> Row:
    """What the table shows of a plan."""
    shown = {name: value for name, value in row.items() if name not in ("command", "query", "limited", "fits")}
    step_ms = row["step_s"] * QUANTITIES["step_s"].factor
    return {
        **shown,
        "id": str(row["number"]),
        "step_s": step_ms,
        "expected": interval(row),
        "gib": row["peak_memory_bytes"] / 2**30,
    }
