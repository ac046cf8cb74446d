"""Writes simulator/lowering/costs/typical_scaling.json, and in docs/profiles.md what it predicts of networks not seen.

    python -m benchmarks.library.typical_scaling      (SHARDSCOPE_DATA says where the measurements of others are)

Made of every profile at hand that has points: those of the library, and tables of Aceso and NeuSight that are not
shipped. A network is held out with all its profiles, on whatever device.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.library.gpu_library import build_from, by_aceso, by_neusight
from benchmarks.pages.published import table
from simulator import files
from simulator.lowering.costs.typical_scaling import (
    EVERY_FAMILY,
    PATH,
    Bound,
    Direction,
    FixedCost,
    FixedCosts,
    device_class,
    family,
    fixed_share,
    keyed,
)
from simulator.taskgraph import Floats
from simulator.units import format_time
from simulator.workload import Layer, Profile

FRACTIONS = (0.5, 0.25, 0.125)
LEAST_NETWORKS = 2
LEAST_SHARE = 1e-2
"""A layer that scales in proportion, or better, counts as having this part of its time fixed: logarithms need one."""
GROUPS_OF_DEVICES = ("opt_350m_4gh200",)
"""Their times hold the group's communication."""


NOT_SHIPPED = (
    by_aceso("gpt_350M"),
    by_neusight("NVIDIA_H100_80GB_HBM3", "bert_large-train-512", 2, 8),
    by_neusight("NVIDIA_H100_80GB_HBM3", "opt_13-train-2048", 1, 2),
    by_neusight("AMD_Instinct_MI250", "gpt2_large-train-1024", 1, 4),
)


def measured_profiles() -> list[Profile]:
    """Every profile with points. Raises FileNotFoundError without the measurements of others."""
    shipped = [files.read_profile(name) for name in files.library() if name not in GROUPS_OF_DEVICES]
    return [profile for profile in (*shipped, *map(build_from, NOT_SHIPPED)) if profile.measured_directions]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPart:
    """A layer's fixed cost as one of its points shows it. weight: its share of its network's time, over its points."""

    network: str
    device_class: str
    direction: Direction
    family: str
    layer: str
    weight: float
    whole_s: float
    fixed_s: float


def measured_parts(profile: Profile) -> Iterator[MeasuredPart]:
    """Every point of every layer along every direction."""
    for direction in Direction:
        for layer in profile.layers:
            points, whole_s = _points(profile, layer, direction), layer.forward_s + layer.backward_s
            for fraction, part_s in points.items() if whole_s else ():
                yield MeasuredPart(
                    network=profile.model,
                    device_class=device_class(profile.device),
                    direction=direction,
                    family=family(layer.kind),
                    layer=f"{profile.model} {profile.device} {layer.name}",
                    weight=whole_s / profile.layers_s / len(points),
                    whole_s=whole_s,
                    fixed_s=(part_s - fraction * whole_s) / (1 - fraction),
                )


def _points(profile: Profile, layer: Layer, direction: Direction) -> dict[float, float]:
    """Measured fraction of the work, below 1 -> forward and backward seconds."""
    points = [point for point in layer.scaling if point.input_channel_fraction == 1]
    if direction is Direction.BATCH:
        less = [point for point in points if point.channel_fraction == 1 and point.batch_size < profile.batch_size]
        return {point.batch_size / profile.batch_size: point.forward_s + point.backward_s for point in less}
    split = [point for point in points if point.batch_size == profile.batch_size and point.channel_fraction < 1]
    return {point.channel_fraction: point.forward_s + point.backward_s for point in split}


def costs_of(parts: Iterable[MeasuredPart]) -> FixedCosts:
    """Of each family on each class of device along each direction that LEAST_NETWORKS show, and of all together."""
    groups: dict[tuple[str, Direction, str], list[MeasuredPart]] = defaultdict(list)
    for part in parts:
        for name in (part.family, EVERY_FAMILY):
            groups[part.device_class, part.direction, name].append(part)
    enough = {
        key: group
        for key, group in sorted(groups.items())
        if key[2] == EVERY_FAMILY or len({part.network for part in group}) >= LEAST_NETWORKS
    }
    return keyed(_cost(*key, group) for key, group in enough.items())


def _cost(kind: str, direction: Direction, name: str, parts: Sequence[MeasuredPart]) -> FixedCost:
    """Least squares of the logarithms, the exponent kept within 0 (constant) and 1 (in proportion)."""
    weights = np.array([part.weight for part in parts])  # (parts,)
    whole = np.array([part.whole_s for part in parts])
    fixed = np.array([part.fixed_s for part in parts])
    x, y = np.log(whole / 1e-3), np.log(np.maximum(fixed, LEAST_SHARE * whole))
    root = np.sqrt(weights)
    spread = np.average((x - np.average(x, weights=root)) ** 2, weights=root)
    slope = np.average((x - np.average(x, weights=root)) * y, weights=root) / spread if spread > 1e-9 else 0.0
    exponent = min(max(slope, 0.0), 1.0)
    at_1ms = np.exp(np.average(y - exponent * x, weights=root))
    multiples = fixed / (at_1ms * (whole / 1e-3) ** exponent)
    low, high = (_quantile(multiples, weights, share) for share in (0.05, 0.95))
    return FixedCost(
        device_class=kind,
        direction=direction,
        family=name,
        cost_at_1ms_s=float(f"{at_1ms:.4g}"),
        exponent=round(float(exponent), 4),
        low=round(min(max(low, 0.0), 1.0), 4),
        high=round(max(high, 1.0), 4),
        layers=len({part.layer for part in parts}),
        networks=tuple(sorted({part.network for part in parts})),
    )


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    """The least value at or below which `share` of the weight lies."""
    order = np.argsort(values, kind="stable")
    position = np.searchsorted(np.cumsum(weights[order]), share * weights.sum())
    return float(values[order][min(position, len(values) - 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A network's measured seconds at a fraction of the work, and what curves without the network say.

    Of all its layers at a fraction of the batch, of those measured so at a fraction of the channels.
    """

    profile: Profile
    direction: Direction
    fraction: float
    measured_s: float
    proportional_s: float
    low_s: float
    typical_s: float
    high_s: float


def held_out(profiles: Sequence[Profile]) -> Iterator[HeldOut]:
    """Every network predicted by costs of the others, at those of FRACTIONS that were measured."""
    parts = {id(profile): list(measured_parts(profile)) for profile in profiles}
    for profile in profiles:
        others = [each for each in profiles if each.model != profile.model]
        costs = costs_of(part for each in others for part in parts[id(each)])
        for direction in Direction:
            for fraction in FRACTIONS:
                points = [(layer, _points(profile, layer, direction).get(fraction)) for layer in profile.layers]
                rows = [(layer, seconds) for layer, seconds in points if seconds is not None]
                if rows:
                    yield _predicted(profile, direction, fraction, rows, costs)


def _predicted(
    profile: Profile, direction: Direction, fraction: float, rows: Sequence[tuple[Layer, float]], costs: FixedCosts
) -> HeldOut:
    kind = device_class(profile.device)

    def total_s(bound: Bound) -> float:
        return sum(
            (layer.forward_s + layer.backward_s)
            * (fraction + (1 - fraction) * fixed_share(kind, direction, layer, bound, costs))
            for layer, _ in rows
        )

    return HeldOut(
        profile=profile,
        direction=direction,
        fraction=fraction,
        measured_s=sum(seconds for _, seconds in rows),
        proportional_s=fraction * sum(layer.forward_s + layer.backward_s for layer, _ in rows),
        low_s=total_s("low"),
        typical_s=total_s("typical"),
        high_s=total_s("high"),
    )


def section(costs: FixedCosts, outcomes: Sequence[HeldOut]) -> str:
    """What docs/profiles.md says of the costs."""
    return f"{_cost_table(costs)}\n\nNetworks held out:\n\n{_errors(outcomes)}"


def _cost_table(costs: FixedCosts) -> str:
    rows = [
        [cost.device_class, cost.direction, cost.family, cost.layers, len(cost.networks)]
        + [format_time(cost.seconds(whole_s)) for whole_s in (1e-4, 1e-3, 1e-2)]
        + [f"{cost.low:.2f} to {cost.high:.2f}"]
        for cost in costs.values()
    ]
    return table(
        ["device", "along", "family", "layers", "networks", "of 0.1 ms", "of 1 ms", "of 10 ms", "5-95 %"], rows
    )


def _errors(outcomes: Sequence[HeldOut]) -> str:
    groups: dict[tuple[str, str, float], list[HeldOut]] = defaultdict(list)
    for outcome in outcomes:
        groups[device_class(outcome.profile.device), outcome.direction, outcome.fraction].append(outcome)
    rows = []
    for (kind, direction, fraction), group in sorted(groups.items(), key=lambda item: (*item[0][:2], -item[0][2])):
        before = [each.proportional_s / each.measured_s - 1 for each in group]
        after = [each.typical_s / each.measured_s - 1 for each in group]
        inside = sum(each.low_s <= each.measured_s <= each.high_s for each in group)
        row = [kind, direction, f"1/{1 / fraction:.0f}", len(group), *_summary(before), *_summary(after)]
        rows.append([*row, f"{inside} of {len(group)}"])
    head = ["device", "along", "fraction", "number", "in proportion: mean", "bias", "worst"]
    return table([*head, "typical curve: mean", "bias", "worst", "inside its band"], rows)


def _summary(errors: Sequence[float]) -> list[str]:
    worst = max(errors, key=abs)
    return [f"{statistics.mean(map(abs, errors)):.1%}", f"{statistics.mean(errors):+.1%}", f"{worst:+.1%}"]


def main() -> None:
    """Write the table and print the section of docs/profiles.md."""
    profiles = measured_profiles()
    costs = costs_of(part for profile in profiles for part in measured_parts(profile))
    rows = ",\n".join(f"  {json.dumps(asdict(cost))}" for cost in costs.values())
    text = f'{{\n "made_by": "python -m benchmarks.library.typical_scaling",\n "costs": [\n{rows}\n ]\n}}\n'
    files.write_text_atomic(PATH, text)
    print(section(costs, list(held_out(profiles))))


if __name__ == "__main__":
    main()
