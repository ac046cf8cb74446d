"""Explore: the partition figure. Its drawings come as SVG (frame/routes.py); here are its nets and candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import html

from dashboard.figures.candidates import candidates
from dashboard.figures.style import Figure
from dashboard.frame.cards import card, drawing, marked, plain_table, plot, scrolled
from dashboard.pages._explore_words import why
from dashboard.state.columns import columns_of
from dashboard.state.simulating import Glance, Outcome
from dashboard.words.kpis import yardstick
from dashboard.words.partition import NetLine, head_sentence, heaviest_nets
from dashboard.words.volume import ByteUnit, volume_unit


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
    kind = "gradient" if line.gradients else "cut"
    mark, layer = html.I(className=f"mark {kind}"), html.Span(f" {line.layer}", className="figure-note")
    layers = marked(layers=" ".join(map(str, line.layers)))
    name = html.Button([mark, line.producer, layer], className="link pick", **layers)
    bar = html.Div(style={"width": f"{max(line.share * 100, 1):.0f}px"}, className=f"share {kind}")
    share = html.Div([bar, f"{line.share:.0%}"], className="share-cell")
    sizes = unit.words(line.bytes), unit.words(line.between)
    return [name, line.readers, f"{line.nets}", f"{line.connectivity}", *sizes, share]
