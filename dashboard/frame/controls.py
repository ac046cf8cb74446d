"""The left rail: a control for each field of a Configuration, with a remark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import log2
from typing import Any

import dash_mantine_components as dmc
from dash import html

import partitioners
from dashboard.state.configuration import (
    DEGREES,
    FACTORS,
    NUMBERS,
    OWN,
    RECOMPUTATION,
    SHARES_STATES,
    Configuration,
)
from dashboard.state.inventory import label
from dashboard.state.measures import sequence_length
from dashboard.state.store import Store
from simulator import collectives
from simulator.lowering.costs.typical_scaling import device_class
from simulator.lowering.schedules import SCHEDULES
from simulator.network import catalogue
from simulator.plan import OPTIMIZERS
from simulator.workload import Profile

BY_STRATEGY = "by the strategy"
OPTIONS = ("microbatches", "imbalance", "effort", *DEGREES, "expert_tensor", "chunks", "recomputation")
"""Fields that only some strategies take."""
GONE = {"display": "none"}
MOST_FACTOR = 6
"""Sliders go from 1/64 to 64 times what the preset says."""


@dataclass(frozen=True, slots=True)
class Control:
    """The id of a field's control, the property that holds its value, and the way from field to property and back."""

    field: str
    holds: str = "value"
    shown: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value

    @property
    def id(self) -> str:
        return _id(self.field)


def _id(field: str) -> str:
    return f"c-{field.replace('_', '-')}"


def _control(field: str) -> Control:
    if field in FACTORS:
        return Control(field, shown=log2, read=lambda power: 2.0 ** float(power or 0))
    if field in NUMBERS and NUMBERS[field].optional:
        return Control(field, shown=lambda value: "" if value is None else value)
    if field == "plan":
        return Control(
            field, shown=lambda key: key or BY_STRATEGY, read=lambda shown: "" if shown == BY_STRATEGY else shown
        )
    return Control(field, "checked" if field == "overlap" else "value")


CONTROLS = tuple(_control(field.name) for field in fields(Configuration))
"""One of each field, in the order in which the page sends their values."""


def rail(store: Store, now: Configuration) -> list[Any]:
    """Every control, showing `now`."""
    set_to = {control.field: control.shown(getattr(now, control.field)) for control in CONTROLS}
    own, usual = {"value": OWN, "label": "the strategy's own"}, {"value": OWN, "label": "as usual"}
    parts = [
        _select("profile", "Model profile", profile_options(store), set_to),
        _select("cluster", "Cluster", cluster_options(store), set_to),
        _select("strategy", "Strategy", partitioners.strategies(), set_to),
        _two(_number("devices", "Devices", set_to), _number("microbatches", "Micro-batches", set_to, "auto")),
        _two(_number("tensor", "Tensor degree", set_to), _number("pipeline", "Pipeline stages", set_to)),
        _two(_number("context", "Context degree", set_to), _number("expert", "Expert degree", set_to)),
        _number("expert_tensor", "Expert tensor degree", set_to),
        _two(_number("chunks", "Virtual stages", set_to), _number("shard_group", "Shard group", set_to)),
        _two(
            _number("zero_stage", "ZeRO stage", set_to),
            _select("recomputation", "Recomputation", RECOMPUTATION, set_to),
        ),
        _select("schedule", "Schedule", [own, *SCHEDULES], set_to),
        *[_slider(field, set_to) for field in FACTORS[:4]],
        _select("collective", "Gradient all-reduce", collectives.names(), set_to),
        dmc.Switch(id="c-overlap", label="Overlap all-reduce", checked=set_to["overlap"], size="sm"),
        _two(
            _number("batch_size", "Global batch", set_to, "profile's"),
            _select("optimizer", "Optimizer", [usual, *OPTIMIZERS], set_to),
        ),
        _slider("speed", set_to),
        _two(
            _number("imbalance", "Imbalance", set_to, "auto", step=0.01, decimals=3),
            _number("effort", "Search effort", set_to, step=0.05, decimals=2),
        ),
        _number("seed", "Seed", set_to),
        _select("plan", "Plan", plan_options(store), set_to),
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
        "expert_tensor": now.expert_tensor > 0 or (now.expert > 1 and now.tensor > 1),
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


def plan_options(store: Store) -> list[Any]:
    """That the strategy makes the plan, and the uploaded plans."""
    uploaded = [{"value": key, "label": f"file {key.replace('@', ' · ')}"} for key in store.plans.everything()]
    return [BY_STRATEGY, *uploaded]


def _labels(identities: Sequence[str]) -> dict[str, str]:
    """What identities are called: the name, and the hash where several have it."""
    names = [label(key) for key in identities]
    return {
        key: name if names.count(name) == 1 else f"{name} · {key.partition('@')[2][:4]}"
        for key, name in zip(identities, names, strict=True)
    }


def cluster_options(store: Store) -> list[Any]:
    """The presets and the uploaded clusters to choose from."""
    names = _labels(list(store.clusters.everything()))
    return [*catalogue.presets(), *({"value": key, "label": name} for key, name in names.items())]


def _two(left: Any, right: Any) -> Any:
    """Two fields beside each other."""
    return dmc.SimpleGrid([left, right], cols=2, spacing=8)


def _select(field: str, label: str, options: Sequence[Any], set_to: Mapping[str, Any]) -> Any:
    """One of `options`: values that say what they are, or each with a label, or in groups."""
    return dmc.Select(
        id=_id(field), label=label, data=list(options), value=set_to[field], allowDeselect=False, size="xs",
        searchable=len(options) > 12 or "group" in options[0], description=" ",
        inputWrapperOrder=["label", "input", "description"],
    )  # fmt: skip


def _number(
    field: str, label: str, set_to: Mapping[str, Any], placeholder: str = "", *, step: float = 1, decimals: int = 0
) -> Any:
    """A number that is clamped to its range when the field is left."""
    taken = NUMBERS[field]
    return dmc.NumberInput(
        id=_id(field), label=label, value=set_to[field], min=taken.low, max=taken.high, step=step,
        placeholder=placeholder, size="xs", clampBehavior="blur", allowDecimal=decimals > 0,
        decimalScale=decimals, allowNegative=False, description="", inputWrapperOrder=["label", "input", "description"],
    )  # fmt: skip


def _slider(field: str, set_to: Mapping[str, Any]) -> Any:
    """A factor on a logarithmic scale, its remark beside its name."""
    name, control = "Device speed" if field == "speed" else field.replace("_", " ").capitalize(), _id(field)
    return dmc.Box(
        [
            dmc.Group(
                [
                    dmc.Text(name, fw=500, fz=13),
                    dmc.Text("", id=f"{control}-remark", className="figure-note"),
                ],
                justify="space-between",
                gap=4,
            ),
            dmc.Slider(
                id=control, min=-MOST_FACTOR, max=MOST_FACTOR, step=0.5, value=set_to[field], label=None, size="sm",
                thumbLabel=name, marks=[{"value": v} for v in (-MOST_FACTOR, 0, MOST_FACTOR)], mt=6, mb=4,
            ),
        ]
    )  # fmt: skip
