"""Explore: the partition figure. Its drawings come as SVG (frame/routes.py); here are its nets and candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dash import html

from dashboard.figures.candidates import candidates
from dashboard.figures.style import Figure
from dashboard.frame.cards import aria, card, plot, scrolled
from dashboard.pages._explore_words import why
from dashboard.state.columns import columns_of
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.store import Store
from dashboard.words.fits import yardstick
from dashboard.words.partition import NetLine, head_sentence, heaviest_nets
from dashboard.words.volume import ByteUnit, volume_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWords:
    """What stands around the partition's drawings: components and figures by their ids."""

    words: Mapping[str, Any]
    figures: Mapping[str, Figure]


def partition_words(store: Store, outcome: Outcome, known: Mapping[str, Glance]) -> PartitionWords:
    """Sentence, nets and candidates of an outcome beside the strategies that are known by now."""
    if outcome.run is None or outcome.cluster is None or outcome.flows is None:
        return PartitionWords(words={"nets": None}, figures={"candidates-graph": candidates((), {}, "")})
    now = outcome.configuration
    shown = known.get(now.strategy) or store.glance(now)
    data = yardstick(known)
    sentence = _sentence(outcome, shown, data)
    nets = heaviest_nets(outcome.profile, outcome.flows, columns_of(outcome.profile, outcome.run.plan))
    return PartitionWords(
        words={
            "nets": _nets(nets, volume_unit(outcome.flows.total_bytes)),
            "why": why(outcome, shown, known.get("data"), sentence),
        },
        figures={"candidates-graph": candidates(outcome.candidates, known, now.strategy)},
    )


def whole_answer(outcome: Outcome, known: Mapping[str, Glance]) -> Any:
    """The answer in a sentence with its bytes, from the strategies that are known, the shown one among them."""
    shown, data = known.get(outcome.configuration.strategy), known.get("data")
    return why(outcome, shown, data, _sentence(outcome, shown, yardstick(known)) if shown and outcome.run else "")


def _sentence(outcome: Outcome, shown: Glance, data: Glance | None) -> str:
    assert outcome.run is not None and outcome.cluster is not None
    return head_sentence(columns_of(outcome.profile, outcome.run.plan), shown, data, outcome.cluster.workers)


def partition_card() -> Any:
    """The figure of the network and its strips."""
    drawings = html.Div(
        [html.Div(id=f"{name}-drawing", className="drawing") for name in ("partition", "strategies")],
        className="partition-scroll", tabIndex=0, role="region", **aria("Partition of the network"),
    )  # fmt: skip
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
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in titles]))
    return html.Table([head, html.Tbody([_net(line, unit) for line in lines])], className="plain-table nets")


def _net(line: NetLine, unit: ByteUnit) -> Any:
    """A row; partition.js lights its layers up."""
    kind = "gradient" if line.gradients else "cut"
    layers: dict[str, Any] = {"data-layers": " ".join(map(str, line.layers))}
    layer = html.Span(f" {line.layer}", className="figure-note")
    name = html.Button([html.I(className=f"mark {kind}"), line.producer, layer], className="link pick", **layers)
    bar = html.Div(style={"width": f"{max(line.share * 100, 1):.0f}px"}, className=f"share {kind}")
    return html.Tr([
        html.Th(name, scope="row"), html.Td(line.readers), html.Td(f"{line.nets}"), html.Td(f"{line.connectivity}"),
        html.Td(unit.words(line.bytes)), html.Td(unit.words(line.between)),
        html.Td(html.Div([bar, f"{line.share:.0%}"], className="share-cell")),
    ])  # fmt: skip
