"""The partition: a lane per device, the layers along it; a sharded layer stands in each lane that holds a shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboard.figures.style import CUT, Figure, device_colours, figure, short_names
from dashboard.state.measures import layer_loads
from simulator.cluster import Cluster
from simulator.run import Run
from simulator.studies.explain import describe
from simulator.taskgraph import Kind
from simulator.units import format_bytes
from simulator.workload import Profile

MOST_CUTS = 600
_LARGEST_PX = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTensor:
    """A tensor of `layer` that crosses from device `source` to `target`, read there first by layer `reader`."""

    layer: int
    reader: int
    source: int
    target: int
    bytes: float


def cut_tensors(run: Run, profile: Profile) -> list[CutTensor]:
    """Every (layer, source, target) that activations cross, most bytes first; bytes of the whole step, one way."""
    graph = run.graph
    activations = np.flatnonzero(graph.kind == Kind.ACTIVATION)
    sums: dict[tuple[int, int, int], float] = {}
    for layer, route, size in zip(
        graph.layer[activations].tolist(),
        graph.route[activations].tolist(),
        graph.bytes[activations].tolist(),
        strict=True,
    ):
        source, target = graph.routes[route].pairs[0]
        sums[layer, source, target] = sums.get((layer, source, target), 0.0) + size
    cuts = [
        CutTensor(layer=layer, reader=_reader(run, profile, layer, target), source=source, target=target, bytes=size)
        for (layer, source, target), size in sums.items()
    ]
    return sorted(cuts, key=lambda cut: -cut.bytes)


def swimlanes(
    run: Run, profile: Profile, cluster: Cluster, layer: int | None = None, device: int | None = None
) -> Figure:
    """Marker area is compute time; red lines are cut tensors, the largest MOST_CUTS of them (the figure says so)."""
    crossing = cut_tensors(run, profile)
    shown = crossing[:MOST_CUTS]
    names = short_names(cluster)[: cluster.workers]
    data = [
        _lines(shown, layer, faint=False),
        _middles(shown, run, names),
        _shards(run, profile, cluster, layer, device),
    ]
    if layer is not None:
        data.insert(0, _lines([cut for cut in shown if cut.layer != layer], None, faint=True))
    left = len(crossing) - len(shown)
    left_out = f"the largest {len(shown)} of {len(crossing)} cut tensors are drawn" if left else ""
    return figure(
        data,
        shapes=_bands(cluster),
        annotations=[{"text": left_out, "showarrow": False, "xref": "paper", "yref": "paper", "x": 1, "y": 1.06}],
        xaxis={
            "title": {"text": "layer, in topological order"},
            "range": [-0.8, len(profile.layers) - 0.2],
            "showgrid": False,
        },
        yaxis={
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "range": [len(names) - 0.5, -0.5],
            "showgrid": False,
        },
    )


def _reader(run: Run, profile: Profile, layer: int, target: int) -> int:
    """The first layer on `target` that reads `layer`."""
    readers = profile.consumers[layer]
    here = [r for r in readers if target in run.plan.placements[profile.layers[r].name].devices]
    return min(here or readers or (layer,))


def _shards(
    run: Run, profile: Profile, cluster: Cluster, layer: int | None, selected_device: int | None
) -> dict[str, Any]:
    loads = layer_loads(run, cluster)
    largest = float(loads.max(initial=0.0)) or 1.0
    colours = device_colours(cluster)
    rows: dict[str, list[Any]] = {"x": [], "y": [], "size": [], "colour": [], "opacity": [], "hover": []}
    for position, layer_profile in enumerate(profile.layers):
        sharding = run.plan.placements[layer_profile.name]
        how = describe(sharding)
        for device in sharding.device_set:
            lit = (layer is None or position == layer) and selected_device in (None, device)
            count = sharding.devices.count(device)
            rows["x"].append(position)
            rows["y"].append(device)
            rows["size"].append(max(4.0, _LARGEST_PX * (loads[position, device] / largest) ** 0.5))
            rows["colour"].append(colours[device])
            rows["opacity"].append(0.95 if lit else 0.2)
            rows["hover"].append(
                [
                    position,
                    device,
                    layer_profile.name,
                    count,
                    len(sharding.devices),
                    loads[position, device] * 1e3,
                    how,
                ]
            )
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rows["x"],
        "y": rows["y"],
        "marker": {
            "symbol": "square", "size": rows["size"], "color": rows["colour"], "opacity": rows["opacity"],
            "line": {"width": 0},
        },
        "customdata": rows["hover"],
        "hovertemplate": "<b>%{customdata[2]}</b>: %{customdata[3]} of %{customdata[4]} shards, "
        "%{customdata[5]:.4g} ms<br>%{customdata[6]}<extra></extra>",
    }  # fmt: skip


def _lines(cuts: list[CutTensor], layer: int | None, *, faint: bool) -> dict[str, Any]:
    drawn = [cut for cut in cuts if layer is None or cut.layer == layer]
    xs = [x for cut in drawn for x in (cut.layer, cut.reader, None)]
    ys = [y for cut in drawn for y in (cut.source, cut.target, None)]
    crowded = len(drawn) > 60
    opacity = 0.12 if faint else 0.35 if crowded else 0.85
    return {
        "type": "scatter", "mode": "lines", "x": xs, "y": ys, "hoverinfo": "skip", "opacity": opacity,
        "line": {"color": CUT, "width": 1 if crowded else 1.8},
    }  # fmt: skip


def _middles(cuts: list[CutTensor], run: Run, names: list[str]) -> dict[str, Any]:
    """Points to hover and click on each cut."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [(cut.layer + cut.reader) / 2 for cut in cuts],
        "y": [(cut.source + cut.target) / 2 for cut in cuts],
        "marker": {"size": 9, "color": CUT, "opacity": 0.001},
        "customdata": [
            [c.layer, c.source, run.graph.layer_names[c.layer], names[c.source], names[c.target], format_bytes(c.bytes)]
            for c in cuts
        ],
        "hovertemplate": "cut: <b>%{customdata[2]}</b> crosses %{customdata[3]} → %{customdata[4]}, "
        "%{customdata[5]} forward and as much back<extra></extra>",
    }  # fmt: skip


def _bands(cluster: Cluster) -> list[dict[str, Any]]:
    colours = device_colours(cluster)
    return [
        {
            "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": lane - 0.42, "y1": lane + 0.42,
            "fillcolor": colours[lane], "opacity": 0.09, "line": {"width": 0}, "layer": "below",
        }
        for lane in range(cluster.workers)
    ]  # fmt: skip
