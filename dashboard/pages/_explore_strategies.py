"""Explore: the strategies beside each other, simulated behind the page, and the advice that comes out of it.

And the partition figure: its drawings come as SVG (frame/routes.py); here are its nets and candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import Dash, html

from dashboard.figures.candidates import candidates
from dashboard.figures.style import Figure
from dashboard.frame.cards import card, drawing, marked, plain_table, plot, scrolled
from dashboard.frame.panels import add_panel, as_html
from dashboard.pages._explore_words import advice_words, later, why
from dashboard.state.advice import advise, moves, too_large
from dashboard.state.alternatives import alternatives, glances_at_hand
from dashboard.state.caps import searches
from dashboard.state.columns import columns_of
from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.store import Store
from dashboard.words.kpis import missing, seconds_range, yardstick
from dashboard.words.partition import NetLine, head_sentence, heaviest_nets
from dashboard.words.volume import ByteUnit, shown_unit, volume_unit
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
            advised = None if quick else advise(store, outcome)
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


def partition_words(outcome: Outcome, known: Mapping[str, Glance]) -> tuple[dict[str, Any], dict[str, Figure]]:
    """Nets and answer, and the figure of plans tried, by their ids; known: strategies that are known by now."""
    if outcome.run is None or outcome.flows is None:
        return {"nets": None}, {"candidates-graph": candidates((), {}, "")}
    nets = heaviest_nets(outcome.profile, outcome.flows, columns_of(outcome.profile, outcome.run.plan))
    words = {"nets": _nets(nets, volume_unit(outcome.flows.total_bytes)), "why": whole_answer(outcome, known)}
    return words, {"candidates-graph": candidates(outcome.candidates, known, outcome.configuration.strategy)}


def whole_answer(outcome: Outcome, known: Mapping[str, Glance]) -> Any:
    """The answer in a sentence with its bytes, from the strategies that are known, the shown one among them."""
    shown, sentence = known.get(outcome.configuration.strategy), ""
    if shown and outcome.run and outcome.cluster:
        columns = columns_of(outcome.profile, outcome.run.plan)
        sentence = head_sentence(columns, shown, yardstick(known), outcome.cluster.workers)
    return why(outcome, shown, known.get("data"), sentence)


def partition_card() -> Any:
    """The figure of the network and its strips."""
    drawings = drawing("Partition of the network", "partition", "strategies")
    named = html.Div(id="partition-title", className="figure-note")
    return card("partition", "Partition: how each block is split, and what crosses", [named, drawings])


def nets_card() -> Any:
    """What crosses, net by net, and the plans that a search tried."""
    parts = [
        html.Div([html.H3("Ten heaviest nets (click one to light it up)", className="card-title"),
                  html.Div(id="nets", **scrolled("Ten heaviest nets"))]),
        html.Div([html.H3("Plans tried: bytes against the step", className="card-title"),
                  plot("candidates-graph", 270, "Bytes of each plan tried against its step")]),
    ]  # fmt: skip
    return card("crossing", "What crosses", [html.Div(parts, className="partition-below")], formats=())


def _nets(lines: Sequence[NetLine], unit: ByteUnit) -> Any:
    if not lines:
        return html.Div("Nothing crosses between devices.", className="figure-note")
    between: list[Any] = ["between", html.Br(), "nodes"]  # in one line the table would be wider than its half of a card
    titles = ("producer", "readers", "nets", "λ − 1", "bytes", between, "share")
    return plain_table(titles, [_net(line, unit) for line in lines], "nets")


def _net(line: NetLine, unit: ByteUnit) -> list[Any]:
    """A row; partition.js lights its layers up."""
    kind = "gradient" if line.of_states else "cut"
    mark, layer = html.I(className=f"mark {kind}"), html.Span(f" {line.layer}", className="figure-note")
    layers = marked(layers=" ".join(map(str, line.layers)))
    name = html.Button([mark, line.producer, layer], className="link pick", **layers)
    bar = html.Div(style={"width": f"{max(line.share * 100, 1):.0f}px"}, className=f"share {kind}")
    share = html.Div([bar, f"{line.share:.0%}"], className="share-cell")
    sizes = unit.words(line.bytes), unit.words(line.between)
    return [name, line.readers, f"{line.nets}", f"{line.connectivity}", *sizes, share]
