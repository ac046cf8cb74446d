"""What a part of a layer takes on a usual device, for profiles that measured only the whole.

Half of the samples take more than half of the time: kernels are launched, weights are read, the last wave of blocks
leaves a device partly idle. Measured profiles show that the excess is a *fixed cost*, nearly the same number of
seconds whatever part is taken: a fraction f of a layer that takes t takes f t + (1 - f) c, with c at most t. From layer
to layer c grows slower than t, as a power of it. A FixedCost holds that power by class of device, direction and family
of layers, and between which multiples of it nine tenths of the measurements lie. `python -m
benchmarks.library.typical_scaling` makes typical_scaling.json; docs/profiles.md
says how well it predicts networks that it was not made of.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

from simulator.workload import Layer, Profile

PATH = Path(__file__).with_suffix(".json")
EVERY_FAMILY = "every"
"""Stands in for a family that too few networks were measured of."""
Bound = Literal["low", "typical", "high"]
BOUNDS: tuple[Bound, ...] = ("low", "typical", "high")


class Direction(StrEnum):
    """Along which a part of a layer's work is taken."""

    BATCH = "batch"
    CHANNELS = "channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCost:
    """Fixed seconds of a layer: cost_at_1ms_s for one of 1 ms, forward and backward, else by a power of its time.

    low and high are the 5 % and 95 % quantiles, as multiples of that. layers: how many it was made of; networks: whose.
    """

    device_class: str
    direction: Direction
    family: str
    cost_at_1ms_s: float
    exponent: float
    low: float
    high: float
    layers: int
    networks: tuple[str, ...]

    def seconds(self, whole_s: float, bound: Bound = "typical") -> float:
        """Of a layer that takes whole_s, at most that."""
        multiple = {"low": self.low, "typical": 1.0, "high": self.high}[bound]
        return min(multiple * self.cost_at_1ms_s * math.pow(whole_s / 1e-3, self.exponent), whole_s)


FixedCosts = Mapping[tuple[str, Direction, str], FixedCost]


def keyed(costs: Iterable[FixedCost]) -> FixedCosts:
    """Costs by class of device, direction and family."""
    return {(cost.device_class, cost.direction, cost.family): cost for cost in costs}


@cache
def typical_costs() -> FixedCosts:
    """Those that come with Shardscope."""
    rows = json.loads(PATH.read_text(encoding="utf-8"))["costs"]
    return keyed(
        FixedCost(**{**row, "direction": Direction(row["direction"]), "networks": tuple(row["networks"])})
        for row in rows
    )


def fixed_share(
    device: str, direction: Direction, layer: Layer, bound: Bound = "typical", costs: FixedCosts | None = None
) -> float:
    """A layer's fixed cost over its time, forward and backward, on a class of devices; 0 where that is empty."""
    whole_s = layer.forward_s + layer.backward_s
    if not device or not whole_s:
        return 0.0
    costs = typical_costs() if costs is None else costs
    cost = costs.get((device, direction, family(layer.kind))) or costs[device, direction, EVERY_FAMILY]
    return cost.seconds(whole_s, bound) / whole_s


@cache
def device_class(device: str) -> str:
    """GPU or CPU by a device's name, empty where it says neither."""
    words = set(re.findall(r"[a-z]+|\d+", device.lower()))
    if words & {"nvidia", "tesla", "geforce", "quadro", "rtx", "gpu", "instinct", "radeon", "cuda", "mi", "gh", "gb"}:
        return "GPU"
    if words & {"cpu", "thread", "threads", "xeon", "epyc", "ryzen", "intel", "core", "cores", "arm", "graviton"}:
        return "CPU"
    return "GPU" if re.search(r"\b([vahbpk]\d{2,3}|[tl]\d{1,2})s?\b", device.lower()) else ""


def family(kind: str) -> str:
    """Layers whose times shrink alike: convolutions, matrix products, attention, and those bound by memory."""
    if kind.startswith("conv") or kind == "downsample":
        return "convolution"
    if kind in ("linear", "transformer", "loss"):
        return "matrix product"
    return "attention" if kind == "attention" else "memory-bound"


def class_without_points(profile: Profile, direction: Direction) -> str:
    """The class of device whose typical costs stand in for a direction without points; empty where none does."""
    return "" if direction in profile.measured_directions else device_class(profile.device)
