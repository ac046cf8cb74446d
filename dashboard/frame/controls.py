"""The left rail: a control for each field of a Configuration, with a remark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import dash_mantine_components as dmc
from dash import html

import partitioners
from dashboard.frame.rail_fields import number, select, slider, two
from dashboard.state.configuration import (
    MOST_CHUNKS,
    MOST_DEVICES,
    MOST_MICROBATCHES,
    MOST_SAMPLES,
    OWN,
    RECOMPUTATION,
    SHARES_STATES,
    Configuration,
)
from dashboard.state.hardware import sequence_length
from dashboard.state.inventory import label
from dashboard.state.sizes import DEGREES
from dashboard.state.store import Store
from simulator import collectives
from simulator.lowering.costs.typical_scaling import device_class
from simulator.lowering.schedules import SCHEDULES
from simulator.network import catalogue
from simulator.plan import OPTIMIZERS
from simulator.workload import Profile

BY_STRATEGY = "by the strategy"
OPTIONS = ("microbatches", "imbalance", "effort", *DEGREES, "chunks", "recomputation")
"""Fields that only some strategies take."""
GONE = {"display": "none"}
SLIDERS = ("inter_bandwidth", "inter_latency", "intra_bandwidth", "intra_latency", "speed")


@dataclass(frozen=True, slots=True)
class Control:
    """The id of a field's control, the property that holds its value, and the way from field to property and back."""

    field: str
    holds: str = "value"
    shown: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value

    @property
    def id(self) -> str:
        return f"c-{self.field.replace('_', '-')}"


def _slider(field: str) -> Control:
    return Control(field, "value", lambda factor: log2(factor), lambda power: 2.0 ** float(power or 0))


def _optional(field: str) -> Control:
    return Control(field, "value", lambda value: "" if value is None else value)


CONTROLS: tuple[Control, ...] = (
    Control("profile"),
    Control("cluster"),
    Control("devices"),
    Control("strategy"),
    _optional("microbatches"),
    Control("schedule"),
    _slider("inter_bandwidth"),
    _slider("inter_latency"),
    _slider("intra_bandwidth"),
    _slider("intra_latency"),
    Control("collective"),
    Control("overlap", "checked"),
    _optional("batch_size"),
    Control("optimizer"),
    _slider("speed"),
    _optional("imbalance"),
    Control("effort"),
    Control("seed"),
    Control("tensor"),
    Control("pipeline"),
    Control("context"),
    Control("expert"),
    Control("chunks"),
    Control("shard_group"),
    Control("zero_stage"),
    Control("recomputation"),
    Control("plan", shown=lambda value: value or BY_STRATEGY, read=lambda value: "" if value == BY_STRATEGY else value),
)


def rail(store: Store, now: Configuration) -> list[Any]:
    """Every control, showing `now`."""
    set_to = {control.field: control.shown(getattr(now, control.field)) for control in CONTROLS}
    own = [{"value": OWN, "label": "the strategy's own"}]
    usual = [{"value": OWN, "label": "as usual"}]
    parts = [
        select("profile", "Model profile", profile_options(store), set_to),
        select("cluster", "Cluster", cluster_options(store), set_to),
        select("strategy", "Strategy", [{"value": n, "label": n} for n in partitioners.strategies()], set_to),
        two(
            number("devices", "Devices", set_to, minimum=1, maximum=MOST_DEVICES),
            number("microbatches", "Micro-batches", set_to, minimum=1, maximum=MOST_MICROBATCHES, placeholder="auto"),
        ),
        two(
            number("tensor", "Tensor degree", set_to, minimum=1, maximum=MOST_DEVICES),
            number("pipeline", "Pipeline stages", set_to, minimum=1, maximum=MOST_DEVICES),
        ),
        two(
            number("context", "Context degree", set_to, minimum=1, maximum=MOST_DEVICES),
            number("expert", "Expert degree", set_to, minimum=1, maximum=MOST_DEVICES),
        ),
        two(
            number("chunks", "Virtual stages", set_to, minimum=0, maximum=MOST_CHUNKS),
            number("shard_group", "Shard group", set_to, minimum=0, maximum=MOST_DEVICES),
        ),
        two(
            number("zero_stage", "ZeRO stage", set_to, minimum=0, maximum=3),
            select("recomputation", "Recomputation", [{"value": n, "label": n} for n in RECOMPUTATION], set_to),
        ),
        select("schedule", "Schedule", own + [{"value": n, "label": n} for n in SCHEDULES], set_to),
        *[slider(field, set_to) for field in SLIDERS[:4]],
        select("collective", "Gradient all-reduce", [{"value": n, "label": n} for n in collectives.names()], set_to),
        dmc.Switch(id="c-overlap", label="Overlap all-reduce", checked=set_to["overlap"], size="sm"),
        two(
            number("batch_size", "Global batch", set_to, minimum=1, maximum=MOST_SAMPLES, placeholder="profile's"),
            select("optimizer", "Optimizer", usual + [{"value": n, "label": n} for n in OPTIMIZERS], set_to),
        ),
        slider("speed", set_to),
        two(
            number("imbalance", "Imbalance", set_to, 0.005, 1.0, step=0.01, placeholder="auto", decimals=3),
            number("effort", "Search effort", set_to, minimum=0.02, maximum=1.0, step=0.05, decimals=2),
        ),
        number("seed", "Seed", set_to, minimum=0, maximum=10**6),
        select("plan", "Plan", plan_options(store), set_to),
    ]
    gone = {control.id for control in CONTROLS if not applies(control.field, now, store.profile(now))}
    for component in html.Div(parts)._traverse():  # type: ignore[no-untyped-call]
        if getattr(component, "id", None) in gone:
            component.style = GONE
    return parts


def applies(field: str, now: Configuration, profile: Profile) -> bool:
    """Whether a control makes a difference to a strategy on a network; one that is set otherwise stays to be seen."""
    taken, tokens = partitioners.options(now.strategy), sequence_length(profile)
    if field in OPTIONS and field not in taken:
        return False
    by_network = {
        "context": bool(tokens) or now.context > 1,
        "expert": any(layer.routing for layer in profile.layers) or now.expert > 1,
        "chunks": now.pipeline > 1 or now.chunks > 1,
        "shard_group": now.strategy in SHARES_STATES and (bool(tokens) or now.shard_group > 0),
        "recomputation": bool(tokens) or now.recomputation != "none",
        "zero_stage": now.strategy in SHARES_STATES,
        "schedule": not tokens or ("schedule" in taken and (now.strategy != "megatron" or now.pipeline > 1)),
    }
    return by_network.get(field, True)


def profile_options(store: Store) -> list[dict[str, Any]]:
    """The profiles to choose from, by identity, in groups: cards, then what was measured on which kind of device."""
    profiles = store.profiles.everything()
    names = _labels(list(profiles))
    groups: dict[str, list[dict[str, str]]] = {
        "Language models": [{"value": name, "label": label(name)} for name in store.cards],
        "Measured on GPUs": [],
        "Measured on CPUs": [],
    }
    for key, profile in profiles.items():
        group = "Measured on GPUs" if device_class(profile.device) == "GPU" else "Measured on CPUs"
        groups[group].append({"value": key, "label": f"{names[key]} · batch {profile.batch_size}"})
    return [{"group": group, "items": items} for group, items in groups.items() if items]


def plan_options(store: Store) -> list[dict[str, str]]:
    """That the strategy makes the plan, and the uploaded plans."""
    uploaded = [{"value": key, "label": f"file {key.replace('@', ' · ')}"} for key in store.plans.everything()]
    return [{"value": BY_STRATEGY, "label": BY_STRATEGY}, *uploaded]


def _labels(identities: Sequence[str]) -> dict[str, str]:
    """What identities are called: the name, and the hash where several have it."""
    names = [label(key) for key in identities]
    return {
        key: name if names.count(name) == 1 else f"{name} · {key.partition('@')[2][:4]}"
        for key, name in zip(identities, names, strict=True)
    }


def cluster_options(store: Store) -> list[dict[str, str]]:
    """The presets and the uploaded clusters to choose from."""
    names = _labels(list(store.clusters.everything()))
    uploaded = [{"value": key, "label": name} for key, name in names.items()]
    return [*({"value": name, "label": name} for name in catalogue.presets()), *uploaded]
