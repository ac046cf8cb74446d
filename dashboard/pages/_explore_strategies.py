"""Explore: the strategies beside each other, simulated behind the page, and the advice that comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import Dash, html

from dashboard.frame.cards import marked
from dashboard.frame.panels import add_panel, as_html
from dashboard.pages._explore_partition import partition_words
from dashboard.pages._explore_words import advice_words, later
from dashboard.state.advice import advise, moves, too_large
from dashboard.state.alternatives import alternatives, glances_at_hand
from dashboard.state.caps import searches
from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.store import Store
from dashboard.words.kpis import missing, seconds_range
from dashboard.words.volume import ByteUnit, shown_unit
from simulator.units import format_bytes, format_time


def add(app: Dash, store: Store) -> None:
    """What the page asks for again and again, once a step is drawn, until everything has been tried."""

    def strategies(sent: Mapping[str, Any]) -> dict[str, Any]:
        """sent: query, tab, number and best as of the step, and `ready`, what the page has."""
        now = store.resolved(store.read(sent["query"])[0])
        outcome = store.at_hand(now)
        if outcome.report is None and outcome.cluster is None and not outcome.took_s:
            return {"html": {"strategies": "", "advice": ""}, "waiting": False, "ready": []}  # it was cancelled
        known_now = store.desk.glance(now)
        if sent.get("best") and (known_now is not None or best_key(outcome) != sent["best"]):
            return {"waiting": True, "ready": sent.get("ready")}  # the step's next answer brings what belongs together
        options = alternatives(now, outcome.profile)
        tried = [] if too_large(outcome) or known_now is None else [move.configuration for move in moves(outcome)]
        # What searches comes last, and of it the strategies before the changes; what is shown is made already.
        wanted = sorted([*options[known_now is None :], *tried], key=lambda option: searches(option.strategy))
        waiting = store.desk.want(wanted, str(sent["tab"])[:64], sent.get("number"))
        glances = glances_at_hand(store.desk, outcome)
        left = len(set(waiting) & set(tried))
        ready = [f"{left} left", *(option.strategy for option, glance in glances.items() if glance is not None)]
        if waiting and ready == sent.get("ready"):
            return {"waiting": True, "ready": ready}
        known = ran(glances)
        if known_now is None:
            advice = later(searches(now.strategy))
        else:
            quick = any(not searches(option.strategy) for option in set(waiting) & set(tried))
            # Once, so that no button moves under a hand.
            advised = None if quick else advise(store, outcome, waits=False)
            advice = advice_words(advised, outcome, len(tried) - left, len(tried))
        words, figures = partition_words(outcome, known)
        words |= {"strategies": strategies_table(list(glances.items())), "advice": advice}
        html_of = {name: as_html(part) for name, part in words.items()}
        return {"html": html_of, "figures": figures, "waiting": bool(waiting), "ready": ready}

    add_panel(app.server, "strategies", strategies)


def best_key(outcome: Outcome) -> str:
    """What tells one best plan of a search from the next."""
    return f"{outcome.took_s:.3f}"


def ran(glances: Mapping[Configuration, Glance | None]) -> dict[str, Glance]:
    """Those with a run, by the names of their strategies; an uploaded plan before what its strategy makes."""
    known: dict[str, Glance] = {}
    for option, glance in glances.items():
        if glance is not None and glance.ran:
            known.setdefault(option.strategy, glance)
    return known


def strategies_table(rows: list[tuple[Configuration, Glance | None]]) -> Any:
    """One row per strategy, the shown one first; its name switches to it."""
    known = [glance.step_s for _, glance in rows if glance is not None and glance.fits]
    titles = ("strategy", "step, 90% sure of", "moved", "between nodes", "max / mean", "peak memory", "limited by")
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in titles]))
    unit = shown_unit(glance for _, glance in rows)
    body = [_row(i, now, glance, min(known, default=0.0), unit) for i, (now, glance) in enumerate(rows)]
    return html.Table([head, html.Tbody(body)], className="plain-table strategies-table")


def _row(number: int, now: Configuration, glance: Glance | None, best_s: float, unit: ByteUnit) -> Any:
    name = html.Button(now.planner, className="link", title=f"Show {now.planner}", **marked(load=now.query()))
    head = html.Th(html.Strong(now.planner) if number == 0 else name, scope="row")
    shown = "shown" if number == 0 else ""
    if glance is None or not glance.ran:
        return html.Tr([head, html.Td(missing(glance), colSpan=6, className="figure-note")], className=shown)
    step: list[Any] = [(html.Strong if glance.step_s == best_s else html.Span)(format_time(glance.step_s))]
    if ends := seconds_range(glance.interval_s):
        step.append(html.Span(f" {ends}", className="figure-note"))
    if glance.microbatches > 1:
        step.append(html.Span(f" in {glance.microbatches} micro-batches", className="figure-note"))
    memory = format_bytes(glance.peak_memory_bytes)
    of = f" of {format_bytes(glance.memory_bytes)}" if glance.memory_bytes else ""
    said = "" if glance.fit == "fits" else f", {glance.fit}"
    between = "not counted" if glance.between_bytes is None else unit.words(glance.between_bytes)
    cells = (
        step, unit.words(glance.total_bytes), between, f"{glance.load_balance_ratio:.2f}",
        html.Span(memory + of + said, className="" if glance.fits else "bad"), glance.bottleneck,
    )  # fmt: skip
    return html.Tr([head, *(html.Td(cell) for cell in cells)], className=shown)
