"""A profile: time by layer, one layer's measured scaling, and the network's layers with their joins."""

from __future__ import annotations

from typing import Any

from dashboard.figures.style import BACKWARD, FORWARD, LEGEND_ABOVE, Figure, figure, with_table
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.workload import Profile

_STEPS = 48


def layer_times(profile: Profile) -> Figure:
    """Forward and backward milliseconds of each layer, in topological order."""
    names = [layer.name for layer in profile.layers]
    data = []
    for direction, colour in (("forward", FORWARD), ("backward", BACKWARD)):
        data.append({
            "type": "bar",
            "name": direction,
            "x": list(range(len(names))),
            "y": [getattr(layer, f"{direction}_s") * 1e3 for layer in profile.layers],
            "customdata": [[layer.name, getattr(layer, f"{direction}_spread_s") * 1e3] for layer in profile.layers],
            "marker": {"color": colour},
            "hovertemplate": f"%{{customdata[0]}}: {direction} %{{y:,.4~r}} ms (spread %{{customdata[1]:,.3~r}})"
            "<extra></extra>",
        })  # fmt: skip
    drawn = figure(
        data,
        barmode="stack",
        bargap=0.1,
        xaxis={"title": "layer, in topological order", "showgrid": False},
        yaxis={"ticksuffix": " ms"},
        legend=LEGEND_ABOVE,
    )
    rows = ((layer.name, layer.forward_s, layer.backward_s) for layer in profile.layers)
    return with_table(drawn, ("layer", "forward_s", "backward_s"), rows)


def scaling(profile: Profile, layer: int) -> Figure:
    """The layer's measured times over the batch size, and the line that costs are read from."""
    measured_layer = profile.layers[layer]
    points = [p for p in measured_layer.scaling if p.channel_fraction == p.input_channel_fraction == 1]
    whole = (profile.batch_size, measured_layer.forward_s, measured_layer.backward_s)
    measured = sorted([(p.batch_size, p.forward_s, p.backward_s) for p in points] + [whole])
    made = "modelled" if profile.notes.startswith("modelled") else "measured"
    most = max(size for size, _, _ in measured) * 1.25
    sizes = [most * (i + 1) / _STEPS for i in range(_STEPS)]
    lines = [shard_seconds(profile, measured_layer, size) for size in sizes]
    data: list[dict[str, Any]] = []
    for at, (direction, colour) in enumerate((("forward", FORWARD), ("backward", BACKWARD))):
        data.append({
            "type": "scatter", "mode": "lines", "name": f"{direction}, as used", "x": sizes,
            "y": [line[at] * 1e3 for line in lines], "line": {"color": colour, "width": 1.5},
            "hoverinfo": "skip", "showlegend": False,
        })  # fmt: skip
        data.append({
            "type": "scatter", "mode": "markers", "name": f"{direction}, {made}", "x": [m[0] for m in measured],
            "y": [m[1 + at] * 1e3 for m in measured], "marker": {"color": colour, "size": 8},
            "hovertemplate": f"batch %{{x}}: {direction} %{{y:,.4~r}} ms<extra></extra>",
        })  # fmt: skip
    drawn = figure(
        data,
        xaxis={"title": "samples"},
        yaxis={"ticksuffix": " ms", "rangemode": "tozero"},
        legend=LEGEND_ABOVE,
    )
    return with_table(drawn, ("samples", "forward_s", "backward_s"), measured)
