"""The fields of the left rail: a select, a number, a slider, each with a place for its remark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc

MOST_FACTOR = 6
"""Sliders go from 1/64 to 64 times what the preset says."""
_SLIDER_NAMES = {
    "inter_bandwidth": "Inter bandwidth",
    "inter_latency": "Inter latency",
    "intra_bandwidth": "Intra bandwidth",
    "intra_latency": "Intra latency",
    "speed": "Device speed",
}


def two(left: Any, right: Any) -> Any:
    """Two fields beside each other."""
    return dmc.SimpleGrid([left, right], cols=2, spacing=8)


def select(field: str, label: str, options: Sequence[Mapping[str, Any]], set_to: Mapping[str, Any]) -> Any:
    """One of `options`."""
    control = f"c-{field.replace('_', '-')}"
    return dmc.Select(
        id=control, label=label, data=options, value=set_to[field], allowDeselect=False, size="xs",
        searchable=len(options) > 12 or "group" in options[0], description=" ",
        inputWrapperOrder=["label", "input", "description"],
    )  # fmt: skip


def number(
    field: str, label: str, set_to: Mapping[str, Any], minimum: float, maximum: float, *,
    step: float = 1, placeholder: str = "", decimals: int = 0,
) -> Any:  # fmt: skip
    """A number that is clamped to its bounds when the field is left."""
    return dmc.NumberInput(
        id=f"c-{field.replace('_', '-')}", label=label, value=set_to[field], min=minimum, max=maximum, step=step,
        placeholder=placeholder, size="xs", clampBehavior="blur", allowDecimal=decimals > 0,
        decimalScale=decimals, allowNegative=False, description="", inputWrapperOrder=["label", "input", "description"],
    )  # fmt: skip


def slider(field: str, set_to: Mapping[str, Any]) -> Any:
    """A factor on a logarithmic scale, its remark beside its name."""
    name, control = _SLIDER_NAMES[field], f"c-{field.replace('_', '-')}"
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
