"""The network: its topology, every busy link's utilisation over the step, and bytes from device to device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dashboard.figures.shades import CIVIDIS
from dashboard.figures.style import (
    BUSY,
    INK,
    LEGEND_ABOVE,
    NAMES,
    NAMES_DOWN,
    OUTLINE,
    TIER_COLOURS,
    Figure,
    colour_bar,
    figure,
    heatmap,
    message,
    note,
    with_table,
)
from dashboard.state.device_groups import MOST_ALONE, DeviceGroup, device_groups
from dashboard.words.volume import volume_unit
from simulator.cluster import Cluster, Link
from simulator.report import traffic
from simulator.report.step_totals import PHASES
from simulator.report.usage import taken_bytes
from simulator.run import Run
from simulator.taskgraph import Floats
from simulator.units import format_bytes

BINS = 120
_NAMED = 4
"""Devices up to which there is room for more than their numbers."""
MOST_LINKS = 24
_LABELLED = 10  # devices up to which a cell has room for its number


def topology(run: Run, cluster: Cluster, opened: int | None = None) -> Figure:
    """Devices, switches and links, each direction a line of its own, coloured in steps by the share of the step it was
    full.

    Of many devices bars instead: of each group (of the devices of group `opened`) the busiest link of each tier.
    """
    if len(cluster.devices) > MOST_ALONE:
        return _busiest(run, cluster, device_groups(cluster, opened))
    positions = _positions(cluster)
    data = _lines(run, cluster, positions)
    middles = [_beside(positions[link.source], positions[link.target]) for link in cluster.links]
    data.append({
        "type": "scatter",
        "mode": "markers",
        "x": [(a[0] + b[0]) / 2 for a, b in middles],
        "y": [(a[1] + b[1]) / 2 for a, b in middles],
        "marker": {
            "size": 7, "color": [use.utilisation for use in run.report.links], **BUSY,
        },
        "customdata": [[use.name, format_bytes(use.bytes), use.utilisation, use.tier] for use in run.report.links],
        "hovertemplate": "%{customdata[0]} (%{customdata[3]}): %{customdata[1]}, %{customdata[2]:.1%}<extra></extra>",
    })  # fmt: skip
    data.append(_points(cluster, positions))
    hidden = {"visible": False}
    drawn = figure(data, xaxis=hidden, yaxis=hidden, margin={"l": 10, "r": 10, "t": 10, "b": 10})
    uses = zip(cluster.links, run.report.links, strict=True)
    rows = ((link.source, link.target, use.tier, round(use.bytes), use.utilisation) for link, use in uses)
    return with_table(drawn, ("from", "to", "tier", "bytes", "busy"), rows)


def link_use(run: Run, cluster: Cluster) -> Figure:
    """Utilisation of each link over time, the busiest MOST_LINKS; a transfer's bytes are spread evenly."""
    order = sorted(range(len(cluster.links)), key=lambda i: -run.report.links[i].utilisation)
    busy = [i for i in order if run.report.links[i].bytes > 0]
    if not busy:
        return message("no link carries anything")
    shown = busy[:MOST_LINKS]
    heat = heatmap(
        (np.linspace(0, run.report.step_s, BINS + 1)[:-1] * 1e3).tolist(), [_short(cluster.links[i]) for i in shown],
        _blank_zeros(utilisation_over_time(run, cluster)[shown]), BUSY["colorbar"],
        "%{y} at %{x:,.4~r} ms: %{z:.2%} of its bandwidth", zmin=0, zmax=1, ygap=2,
    )  # fmt: skip
    left_out = f"the {len(shown)} busiest of {len(busy)} links" if len(busy) > len(shown) else ""
    return figure(
        [heat],
        margin={"l": 48, "r": 12, "t": 26, "b": 38},
        annotations=[note(left_out)],
        xaxis={"title": "ms", "showgrid": False},
        yaxis=NAMES_DOWN,
    )


def _short(link: Link) -> str:
    """A link's ends; the second without the node where that is the first's."""
    node = link.source.rpartition("/")[0]
    return f"{link.source}->{link.target.removeprefix(f'{node}/') if node else link.target}"


def _busiest(run: Run, cluster: Cluster, groups: Sequence[DeviceGroup]) -> Figure:
    owner: dict[str, int] = {}
    for number, group in enumerate(groups):
        for device in (cluster.devices[i] for i in group.devices):
            owner[device.name] = number
            owner.setdefault(device.host if len(group.devices) > 1 else device.name, number)
    busiest: dict[str, list[float]] = {tier: [0.0] * len(groups) for tier in cluster.tiers}
    for use, link in zip(run.report.links, cluster.links, strict=True):
        for end in (link.source, link.target):
            at = owner.get(end, owner.get(end.partition("/")[0]))
            if at is not None:
                busiest[link.tier][at] = max(busiest[link.tier][at], use.utilisation)
    names = [group.name for group in groups]
    data = [
        {"type": "bar", "name": f"{tier} links", "x": names, "y": shares, "marker": {"color": colour},
         "hovertemplate": f"%{{x}}: its busiest {tier} link %{{y:.2%}} of the step<extra></extra>"}
        for (tier, shares), colour in zip(busiest.items(), TIER_COLOURS * 4, strict=False)
    ]  # fmt: skip
    return figure(
        data, barmode="group", legend=LEGEND_ABOVE, xaxis={**NAMES, "tickangle": 45},
        yaxis={"tickformat": ".0%", "range": [0, 1], "title": "busiest link"},
    )  # fmt: skip


def _blank_zeros(values: Floats) -> list[list[float | None]]:
    return [[float(f"{value:.3g}") if value > 0 else None for value in row] for row in values.tolist()]


def utilisation_over_time(run: Run, cluster: Cluster, bins: int = BINS) -> Floats:
    """Bandwidth that is taken of each link in equal parts of the step, over what it has; shape (links, bins)."""
    step_s = run.report.step_s
    taken = taken_bytes(run.graph, cluster, run.timeline, np.linspace(0.0, step_s, bins + 1))  # (links, bins)
    capacity = np.array([link.bandwidth_bytes_per_s for link in cluster.links]) * (step_s / bins)  # (links,)
    return taken / capacity[:, None] if step_s else taken


Position = tuple[float, float]


def _positions(cluster: Cluster) -> dict[str, Position]:
    """A tree drawn from its root where there are switches, otherwise a circle."""
    members = [device.name for device in cluster.devices]
    names = dict.fromkeys([*members, *(end for link in cluster.links for end in (link.source, link.target))])
    switches = [name for name in names if name not in set(members)]
    if not switches:
        turns = [2 * np.pi * i / len(members) for i in range(len(members))]
        return {name: (float(np.cos(t)), float(np.sin(t))) for name, t in zip(members, turns, strict=True)}
    spread = {name: (float(i), 0.0) for i, name in enumerate(members)}
    level, waiting, placed = 1.0, switches, dict(spread)
    while waiting:
        ready = [s for s in waiting if any(n in placed for n in _neighbours(cluster, s))]
        lowest = [s for s in ready if s != "core" or len(waiting) == 1] or ready or waiting
        for name in lowest:
            xs = [placed[n][0] for n in _neighbours(cluster, name) if n in placed] or [len(members) / 2]
            spread[name] = (sum(xs) / len(xs), level)
        placed, waiting, level = dict(spread), [s for s in waiting if s not in lowest], level + 1
    return spread


def _neighbours(cluster: Cluster, name: str) -> list[str]:
    return [link.target for link in cluster.links if link.source == name]


def _beside(a: Position, b: Position) -> tuple[Position, Position]:
    """The line from a to b, moved a little to its right so that both directions are seen."""
    along = np.array(b) - np.array(a)
    size = float(np.hypot(*along)) or 1.0
    aside = np.array([along[1], -along[0]]) / size * 0.05
    start, end = np.array(a) + aside, np.array(b) + aside
    return (float(start[0]), float(start[1])), (float(end[0]), float(end[1]))


def _lines(run: Run, cluster: Cluster, positions: dict[str, Position]) -> list[dict[str, Any]]:
    """The links, those as busy as each other in one trace: what Plotly takes grows with their number."""
    alike: dict[int, list[tuple[Position, Position]]] = {}
    for use, link in zip(run.report.links, cluster.links, strict=True):
        level = round(min(use.utilisation, 1.0) * (len(CIVIDIS) - 1)) if use.utilisation > 0 else -1
        alike.setdefault(level, []).append(_beside(positions[link.source], positions[link.target]))
    return [
        {
            "type": "scatter", "mode": "lines", "hoverinfo": "skip",
            "x": [x for a, b in ends for x in (a[0], b[0], None)],
            "y": [y for a, b in ends for y in (a[1], b[1], None)],
            "line": {"color": CIVIDIS[-1 - level], "width": 1 + 4 * level / (len(CIVIDIS) - 1)}
            if level >= 0 else {"color": OUTLINE, "width": 1, "dash": "dot"},
        }
        for level, ends in sorted(alike.items())
    ]  # fmt: skip


def _points(cluster: Cluster, positions: dict[str, Position]) -> dict[str, Any]:
    """Devices are named below and switches beside them, away from the middle, where no link passes."""
    names = {device.name: device.name.rpartition("/")[2] for device in cluster.devices}
    if len(names) > _NAMED:
        names = {name: short.strip("gpu") or short for name, short in names.items()}
    middle = sum(positions[name][0] for name in names) / len(names)
    sides = {name: _side(x - middle) for name, (x, _) in positions.items()}
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [x for x, _ in positions.values()],
        "y": [y for _, y in positions.values()],
        "text": [names.get(name, name.removesuffix("/switch")) if len(positions) <= 40 else "" for name in positions],
        "textposition": ["bottom center" if name in names else sides[name] for name in positions],
        "marker": {
            "size": [16 if name in names else 11 for name in positions],
            "symbol": ["square" if name in names else "diamond" for name in positions],
            "color": INK,
        },
        "cliponaxis": False,
        "hoverinfo": "skip",
    }  # fmt: skip


def _side(right_of_middle: float) -> str:
    if abs(right_of_middle) < 0.25:
        return "top center"
    return "middle right" if right_of_middle > 0 else "middle left"


def traffic_matrix(
    run: Run, cluster: Cluster, phase: str | None = None, logarithmic: bool = False, opened: int | None = None
) -> Figure:
    """Row sends to column; cells without traffic are blank.

    Of many devices a row and a column per group; opened: the group whose devices are drawn, what leaves it left out.
    """
    groups = device_groups(cluster, opened)
    kinds = PHASES.values() if phase is None else (PHASES[phase],)
    matrix = _grouped(traffic.traffic_matrix(run.graph, len(cluster.devices), kinds), groups)
    if not matrix.any():
        return message(f"nothing crosses between devices{f' in {phase}' if phase else ''}")
    names = [group.name for group in groups]
    largest = float(matrix.max())
    unit = volume_unit(run.report.communication_bytes.total)
    cells = np.where(matrix > 0, matrix / unit.size, np.nan)
    z = np.log10(cells) if logarithmic else cells
    texts = [[format_bytes(v) if v else "" for v in row] for row in matrix.tolist()]
    labels = [[f"{v:.3g}" if v == v else "" for v in row] for row in cells.tolist()]
    shown = [[None if v != v else v for v in row] for row in z.tolist()]
    ends = {} if logarithmic else {"zmin": 0, "zmax": largest / unit.size}
    written = {"text": labels, "texttemplate": "%{text}", "textfont": {"size": 10}} if len(names) <= _LABELLED else {}
    heat = heatmap(
        names, names, shown, _bar(unit.name, z, logarithmic), "%{y} → %{x}: %{customdata}", customdata=texts, xgap=2,
        ygap=2, **ends, **written,
    )  # fmt: skip
    drawn = figure([heat], xaxis={"title": "to", **NAMES}, yaxis={"title": "from", **NAMES_DOWN})
    pairs = ((names[i], names[j], round(matrix[i, j])) for i, j in zip(*np.nonzero(matrix), strict=True))
    return with_table(drawn, ("from", "to", "bytes"), pairs)


def _grouped(matrix: Floats, groups: tuple[DeviceGroup, ...]) -> Floats:
    """Sums over groups of devices, shape (groups, groups)."""
    member = np.zeros((len(groups), len(matrix)))
    for number, group in enumerate(groups):
        member[number, list(group.devices)] = 1
    summed: Floats = member @ matrix @ member.T
    return summed


def _bar(unit: str, z: np.ndarray, logarithmic: bool) -> dict[str, Any]:
    if not logarithmic:
        return colour_bar(unit)
    ticks = np.linspace(np.nanmin(z), np.nanmax(z), 5)
    return colour_bar(unit, tickvals=ticks.tolist(), ticktext=[f"{10**t:.3g}" for t in ticks])
