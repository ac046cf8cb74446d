"""What stands below the controls: where a value is from, what is offered, why a control has no effect or is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from dash import html
from plotly.io.json import to_json_plotly

import partitioners
from dashboard.frame.cards import marked
from dashboard.frame.controls import CONTROLS, applies
from dashboard.state.configuration import DEGREES, FACTORS, OWN
from dashboard.state.planning import batch_of, batch_sizes, degrees, microbatch_counts, tier_links
from dashboard.state.simulating import Outcome
from simulator.network import catalogue
from simulator.plan import OPTIMIZERS
from simulator.units import format_bandwidth, format_time

SHARED = ("nothing", "optimizer state", "gradients, too", "parameters, too")
"""What replicas share out, by stage of ZeRO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """The text below a control, values that it offers, whether it is disabled because it has no effect, or gone."""

    text: str = ""
    disabled: bool = False
    gone: bool = False
    offers: tuple[int, ...] = ()

    def description(self, control: str) -> Any:
        """The text, and the offered values as buttons that page.js sets the control to, as the browser gets them."""
        if not self.offers:
            return self.text
        buttons = []
        for value in self.offers:
            sets = marked(set=control, value=value)
            buttons.append(html.Button(f"{value}", className="offer", title=f"set to {value}", **sets))
        return json.loads(to_json_plotly(html.Span([f"{self.text} " if self.text else "", *buttons])))


def remarks(outcome: Outcome) -> Mapping[str, Remark]:
    """For the fields that need one; a control that does not apply to the strategy or the network is gone."""
    now, profile = outcome.configuration, outcome.profile
    taken = partitioners.options(now.strategy)
    plan = outcome.plan
    remarks = {
        "profile": Remark(text=_profile_remark(outcome)),
        "cluster": Remark(text=_cluster_remark(now.cluster)),
        "strategy": Remark(text=first_sentence(now.strategy)),
        "batch_size": Remark(
            text="" if now.batch_size else f"now {batch_of(now, outcome.profile)}",
            offers=tuple(batch_sizes(now, outcome.profile)),
        ),
        **_state_remarks(outcome),
        "schedule": Remark(text=f"now {plan.schedule}" if plan and now.schedule == OWN else ""),
        "speed": Remark(text=f"×{now.speed:.3g}"),
        **_link_remarks(outcome),
    }
    if plan and plan.strategy != now.strategy:
        remarks["strategy"] = Remark(text=f"{first_sentence(now.strategy)} The plan here is by {plan.strategy}.")
    if plan and now.microbatches is None and "microbatches" in taken:
        remarks["microbatches"] = Remark(text=f"now {plan.microbatches}")
    if "microbatches" in taken:
        offers = tuple(microbatch_counts(now, outcome.profile))
        remarks["microbatches"] = replace(remarks.get("microbatches", Remark()), offers=offers)
    if set(DEGREES) <= set(taken):
        remarks |= {name: Remark(offers=tuple(offers)) for name, offers in degrees(now, profile).items()}
    if plan and not (outcome.report and outcome.report.communication_bytes.synchronisation):
        text = "no layer has replicas, so nothing is synchronised"
        remarks |= {"overlap": Remark(text=text, disabled=True)}
    gone = (control.field for control in CONTROLS if not applies(control.field, now, profile))
    return remarks | dict.fromkeys(gone, Remark(gone=True))


def _profile_remark(outcome: Outcome) -> str:
    """Where it was measured, and which times of this step were not, whose spread is part of the step's interval."""
    made = "modelled for" if outcome.profile.notes.startswith("modelled") else "measured on"
    text = f"{made} {outcome.profile.device or 'an unnamed device'}"
    report = outcome.report
    return f"{text}; {report.sizes_note}" if report and report.sizes_note else text


def _cluster_remark(name: str) -> str:
    return catalogue.read_preset(name).title if name in catalogue.presets() else "an uploaded file"


def first_sentence(strategy: str) -> str:
    """The first line of a strategy's module."""
    module = import_module(f"partitioners.{strategy.replace('-', '_')}")
    return (module.__doc__ or "").strip().splitlines()[0]


def _state_remarks(outcome: Outcome) -> dict[str, Remark]:
    """What the optimizer keeps and what replicas share out, where it is left open."""
    now, plan = outcome.configuration, outcome.plan
    kept = {state: name for name, state in OPTIMIZERS.items()}
    optimizer = f"now {kept.get(plan.optimizer_state, 'another')}" if plan and now.optimizer == OWN else ""
    stage = plan.states.stage if plan else now.zero_stage
    shared = f"now {stage}: shares {SHARED[stage]}" if plan else ""
    return {"optimizer": Remark(text=optimizer), "zero_stage": Remark(text=shared, offers=(0, 1, 2, 3))}


def _link_remarks(outcome: Outcome) -> dict[str, Remark]:
    now, cluster = outcome.configuration, outcome.cluster
    if cluster is None:
        return dict.fromkeys(FACTORS[:4], Remark(text=outcome.reason, disabled=True))
    hosts = {device.host for device in cluster.devices}
    remarks = {}
    for tier in ("inter", "intra"):
        link = tier_links(cluster).get(tier)
        why = f"no {tier} links" if link is None else ""
        if tier == "inter" and len(hosts) == 1 and "intra" in cluster.tiers:
            why = "one node only"
        bandwidth = format_bandwidth(link.bandwidth_bytes_per_s) if link else ""
        latency = format_time(link.latency_s) if link else ""
        share = (
            f", {link.achieved.median:.0%} of the line rate"
            if link and link.line_rate_bytes_per_s and link.achieved
            else ""
        )
        remarks[f"{tier}_bandwidth"] = Remark(
            text=why or f"{bandwidth} (×{getattr(now, f'{tier}_bandwidth'):.3g}{share})", disabled=bool(why)
        )
        remarks[f"{tier}_latency"] = Remark(
            text=why or f"{latency} (×{getattr(now, f'{tier}_latency'):.3g})", disabled=bool(why)
        )
    return remarks
