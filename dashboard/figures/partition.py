"""The partition figure: how the network is split, what crosses, and the same bytes under the other strategies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dashboard.figures import svg
from dashboard.figures.partition_graph import WIDTH, ColumnGrid, frame_of, graph
from dashboard.figures.partition_rows import LANE_HEIGHT, ROWS_HEIGHT, STRIP, lane, rows, strips
from dashboard.figures.shades import Shades, shades_of
from dashboard.state.columns import Column
from dashboard.state.configuration import Configuration
from dashboard.state.device_groups import short_names
from dashboard.state.flows import Flows
from dashboard.state.simulating import Glance
from dashboard.words.volume import ByteUnit, volume_unit
from simulator.cluster import Cluster


def partition(columns: Sequence[Column], flows: Flows, cluster: Cluster, device: int | None = None) -> str:
    """The folded network over its rows of bars as one SVG; `device`: a worker whose own rows are added."""
    shades, geometry = shades_of(cluster), ColumnGrid.of(len(columns))
    frame = frame_of(columns, 8.0)
    below = frame.top + frame.height + 14
    marks = [
        svg.rect(0, 0, WIDTH, frame.top + frame.height + 2, class_="band"),
        *_graph_words(shades, volume_unit(flows.total_bytes)),
        *(svg.text(936, below - 24 + 11 * i, text, class_="dim tiny") for i, text in enumerate(_letters(columns))),
        *graph(columns, flows, shades, geometry, frame),
        *rows(columns, flows, shades, geometry, below),
    ]
    height = below + ROWS_HEIGHT
    if device is not None and device < cluster.workers:
        name = short_names(cluster)[device]
        marks += lane(columns, flows, device, name, geometry, height)
        height += LANE_HEIGHT
    return svg.document(WIDTH, height, marks, "How each block of the network is split, and the bytes that cross")


def strategies(columns: Sequence[Column], drawn: Mapping[Configuration, Glance | None]) -> str:
    """The same bytes under each strategy, the shown one first, on the columns of `partition`, as one SVG."""
    marks = strips(columns, drawn, ColumnGrid.of(len(columns)), 4.0)
    return svg.document(WIDTH, STRIP * len(drawn) + 42, marks, "Bytes of each block under each strategy")


def _graph_words(shades: Shades, unit: ByteUnit) -> list[str]:
    marks = [
        svg.text(20, 26, "split", class_="heading ink"),
        svg.text(20, 41, "rows: samples, n", class_="dim tiny"),
        svg.text(20, 54, "columns: channels, c", class_="dim tiny"),
        svg.text(20, 74, f"{unit.name} that cross", class_="heading cut-ink"),
        svg.rect(20, 81, 11, 9, class_="cut-between"),
        svg.text(36, 89, "between nodes", class_="dim tiny"),
        svg.rect(20, 95, 11, 9, class_="cut-inside"),
        svg.text(36, 103, "inside a node", class_="dim tiny"),
    ]
    return marks + _key(shades)


def _letters(columns: Sequence[Column]) -> list[str]:
    """What stands for itself in no head of the figure, of those letters that its splits have."""
    known = {"s": "height or sequence", "r": "parts of a sum"}
    used = [letter for letter in known if any(re.search(rf"\d ?[a-z×]*{letter}", each.words) for each in columns)]
    return [f"{letter}: {known[letter]}" for letter in used]


def _key(shades: Shades) -> list[str]:
    """Which colour is which device, or which node."""
    left = 936.0
    if shades.by_node:
        wide = 140 / len(shades.nodes)
        first = [shades.node.index(number) for number in range(len(shades.nodes))]
        cells = [svg.rect(left + wide * i, 32, wide + 0.3, 14, fill=shades.colours[at]) for i, at in enumerate(first)]
        return [
            svg.text(left, 24, f"shade: node, {len(shades.node)} devices", class_="dim tiny"), *cells,
            svg.text(left, 59, "node 0", class_="dim tiny"),
            svg.text(left + 140, 59, f"{len(shades.nodes) - 1}", class_="dim tiny", text_anchor="end"),
        ]  # fmt: skip
    marks = [svg.text(left, 24, "hue: node, shade: device", class_="dim tiny")]
    for number in range(len(shades.nodes)):
        members = [i for i, node in enumerate(shades.node) if node == number]
        y, wide = 32 + 19.0 * number, min(18.0, 100 / len(members))
        for k, device in enumerate(members):
            x = left + wide * k
            marks.append(svg.rect(x, y, wide - 1, 14, rx=2, fill=shades.colours[device], class_="cell pick",
                                  data_devices=device, data_device=device))  # fmt: skip
            if wide >= 12:
                ink = "on-dark" if _dark(shades.colours[device]) else "on-light"
                middle = x + wide / 2 - 0.5
                marks.append(svg.text(middle, y + 11, str(device), class_=f"tiny {ink}", text_anchor="middle"))
        marks.append(svg.text(left + wide * len(members) + 6, y + 11, f"node {number}", class_="dim tiny"))
    return marks


def _dark(colour: str) -> bool:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140
