"""The folded network of the partition figure: glyphs of splits, and ribbons as wide as the bytes that cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.figures import svg
from dashboard.figures.partition_glyphs import drawn_glyph, layer_numbers
from dashboard.figures.shades import Shades
from dashboard.state.columns import JOIN, Column
from dashboard.state.flows import BETWEEN, Flows
from dashboard.words.volume import ByteUnit, volume_unit
from simulator.taskgraph import Floats
from simulator.units import format_bytes

WIDTH, LEFT, RIGHT = 1100.0, 146.0, 916.0
_SERIAL_HEIGHT, _LANES_HEIGHT, _ARCH = 62.0, 128.0, 26.0
_WIDEST_GLYPH = 120.0
_LABELLED = 0.05
"""Share of all activation bytes from which a ribbon has its number."""

Place = tuple[int, int]
"""A column and one of its lanes (or JOIN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGrid:
    """Where the columns stand: the middle of each, the width of its glyph, the distance between two."""

    middles: tuple[float, ...]
    glyph: float
    pitch: float

    @classmethod
    def of(cls, count: int) -> ColumnGrid:
        pitch = (RIGHT - LEFT) / count
        middles = tuple(LEFT + pitch * (i + 0.5) for i in range(count))
        return cls(middles=middles, glyph=min(_WIDEST_GLYPH, pitch * 0.62), pitch=pitch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The top of the picture of the graph, the height of what it draws, and the line that serial columns stand on."""

    top: float
    height: float
    middle: float
    lane_height: float


def frame_of(columns: Sequence[Column], top: float) -> Frame:
    """Room for the column with the most lanes, and for arches above it."""
    lanes = max(len(column.lanes) for column in columns)
    inner = _SERIAL_HEIGHT if lanes == 1 else max(_SERIAL_HEIGHT, min(_LANES_HEIGHT, lanes * 34.0))
    arched = _ARCH + 6 if any(column.skips for column in columns) else 4.0
    return Frame(
        top=top, height=arched + inner + 50, middle=top + arched + inner / 2, lane_height=inner / max(lanes, 1) - 3
    )


def graph(columns: Sequence[Column], flows: Flows, shades: Shades, geometry: ColumnGrid, frame: Frame) -> list[str]:
    """The marks: hairlines and ribbons first, then glyphs, rings and names over them."""
    crossing = column_edges(columns, flows)
    ribbons = {edge: size for edge, size in crossing.items() if edge[0] != edge[1]}
    largest = max((float(size.sum()) for size in ribbons.values()), default=0.0)
    widest = 15.0 if any(len(column.lanes) > 1 or column.skips for column in columns) else 28.0
    taken: list[svg.Box] = []
    back, front, labels = [], [], []
    anchors = _Anchors(columns, geometry, frame)
    for edge in sorted(_wires(columns) - ribbons.keys()):
        back.append(svg.path(anchors.path(*edge), class_="hair", fill="none"))
    total = float(flows.edge_bytes.sum())
    for edge, size in sorted(ribbons.items(), key=lambda item: -float(item[1].sum())):
        width = max(1.5, widest * float(size.sum()) / largest) if largest else 0.0
        back.append(_ribbon(columns, edge, size, anchors.path(*edge), width))
        if size.sum() >= _LABELLED * total:
            labels.append((anchors.label(*edge), float(size.sum())))
    inner = _inner(crossing)
    scale = widest / largest if largest else widest / max((float(s.sum()) for s in inner.values()), default=1.0)
    for number, column in enumerate(columns):
        marks, boxes = _column(column, number, shades, anchors, inner, scale)
        front += marks
        taken += boxes
    return back + front + list(_labels(labels, taken, volume_unit(flows.total_bytes)))


def column_edges(columns: Sequence[Column], flows: Flows) -> dict[tuple[Place, Place], Floats]:
    """Bytes from place to place, (2,) each: inside nodes and between; a place has what crosses inside it."""
    spot: dict[int, Place] = {}
    for number, column in enumerate(columns):
        spot |= {layer: (number, lane) for layer, lane in column.place_of().items()}
    sums: dict[tuple[Place, Place], Floats] = {}
    for producer, reader, size in zip(flows.producer.tolist(), flows.reader.tolist(), flows.edge_bytes, strict=True):
        edge = spot[producer], spot[reader]
        if edge[1][0] < edge[0][0] or (edge[0][0] == edge[1][0] and not _to_join(edge)):
            edge = edge[0], edge[0]  # from one repeat of a column to the next
        sums[edge] = sums.get(edge, np.zeros(2)) + size
    return sums


def _to_join(edge: tuple[Place, Place]) -> bool:
    """Whether an edge leads from a lane to where the lanes of its column join."""
    (column, lane), (other, target) = edge
    return column == other and lane != JOIN and target == JOIN


def _inner(crossing: dict[tuple[Place, Place], Floats]) -> dict[Place, Floats]:
    """What crosses inside a place; what crosses at a join is drawn in the column's first lane."""
    sums: dict[Place, Floats] = {}
    for (source, target), size in crossing.items():
        if source == target:
            spot = source[0], max(source[1], 0)
            sums[spot] = sums.get(spot, np.zeros(2)) + size
    return sums


def _wires(columns: Sequence[Column]) -> set[tuple[Place, Place]]:
    """The edges of the folded network."""
    edges: set[tuple[Place, Place]] = set()
    for number, column in enumerate(columns):
        before = (number - 1, JOIN if columns[number - 1].join else 0) if number else None
        for lane in range(len(column.lanes)):
            if before:
                edges.add((before, (number, lane)))
            if column.join and lane < len(column.lanes) - column.open_lanes:
                edges.add(((number, lane), (number, JOIN)))
        if column.skips and before:
            edges.add((before, (number, JOIN)))
    return edges


class _Anchors:
    """Where edges leave and arrive."""

    def __init__(self, columns: Sequence[Column], geometry: ColumnGrid, frame: Frame) -> None:
        self.columns, self.geometry, self.frame = columns, geometry, frame

    def lane_middle(self, column: int, lane: int) -> float:
        count = len(self.columns[column].lanes)
        return self.frame.middle + (lane - (count - 1) / 2) * (self.frame.lane_height + 3)

    def height(self, column: int) -> float:
        return min(_SERIAL_HEIGHT, self.frame.lane_height * (2 if len(self.columns[column].lanes) == 1 else 1))

    def left(self, column: int) -> float:
        return self.geometry.middles[column] - self.geometry.glyph / 2

    def right(self, column: int) -> float:
        return self.geometry.middles[column] + self.geometry.glyph / 2

    def ring(self, column: int) -> float:
        return min(self.right(column) + 7, self.geometry.middles[column] + self.geometry.pitch / 2 - 3)

    def start(self, spot: Place) -> tuple[float, float]:
        column, lane = spot
        if lane == JOIN:
            return self.ring(column) + 3, self.frame.middle
        return self.right(column), self.lane_middle(column, lane)

    def end(self, spot: Place) -> tuple[float, float]:
        column, lane = spot
        if lane == JOIN:
            return self.ring(column) - 3, self.frame.middle
        return self.left(column), self.lane_middle(column, lane)

    def over(self, source: Place, target: Place) -> bool:
        """Whether an edge passes over what stands between its ends."""
        return source[0] != target[0] and (target[1] == JOIN or target[0] - source[0] > 1)

    def top(self, source: Place, target: Place) -> float:
        """Where an arch is highest."""
        between = range(source[0] + 1, target[0] + 1)
        return min(self.lane_middle(i, 0) - self.height(i) / 2 for i in between) - 9

    def path(self, source: Place, target: Place) -> str:
        (x0, y0), (x1, y1) = self.start(source), self.end(target)
        if self.over(source, target):
            return svg.arch(x0, y0, x1, y1, self.top(source, target))
        return svg.curve(x0, y0, x1, y1)

    def label(self, source: Place, target: Place) -> tuple[float, float]:
        (x0, y0), (x1, y1) = self.start(source), self.end(target)
        if self.over(source, target):
            return (x0 + x1) / 2, self.top(source, target) - 1
        return (x0 + x1) / 2, (y0 + y1) / 2 - 6


def _ribbon(columns: Sequence[Column], edge: tuple[Place, Place], size: Floats, data: str, width: float) -> str:
    between = width * float(size[BETWEEN] / size.sum())
    marks = [svg.path(data, class_="cut-inside", fill="none", stroke_width=width)]
    if between:
        marks.append(svg.path(data, class_="cut-between", fill="none", stroke_width=max(between, 1.0)))
    names = columns[edge[0][0]].title, columns[edge[1][0]].title
    far = format_bytes(float(size[BETWEEN]))
    words = f"{names[0]} → {names[1]}: {format_bytes(float(size.sum()))}, {far} of it between nodes"
    layers = columns[edge[0][0]].layers
    return svg.group(marks, words, class_="pick", data_layers=layer_numbers(layers))


def _column(
    column: Column, number: int, shades: Shades, anchors: _Anchors, inner: dict[Place, Floats], scale: float
) -> tuple[list[str], list[svg.Box]]:
    marks, boxes = [], []
    height = anchors.height(number)
    left, whole = anchors.left(number), anchors.geometry.glyph
    for lane, glyphs in enumerate(column.lanes):
        middle = anchors.lane_middle(number, lane)
        each = (whole - 2 * (len(glyphs) - 1)) / len(glyphs)
        for i, glyph in enumerate(glyphs):
            x, y = left + i * (each + 2), middle - height / 2
            if column.times > 1:
                marks.append(svg.rect(x + 3, y - 3, each, height, rx=2, class_="behind"))
            marks.append(drawn_glyph(glyph, column, shades, (x, y, each, height)))
        boxes.append((left, middle - height / 2, left + whole, middle + height / 2))
        if (size := inner.get((number, lane))) is not None and size.sum() > 0:
            wide = min(max(2.0, scale * float(size.sum())), whole - 4)
            share = float(size[BETWEEN] / size.sum())
            x = left + whole / 2 - wide / 2
            bars = [svg.rect(x, middle - 5, wide, 10, class_="cut-inside bar edge"),
                    svg.rect(x, middle - 5, wide * share, 10, class_="cut-between bar")]  # fmt: skip
            words = f"inside {column.title}: {format_bytes(float(size.sum()))} cross"
            marks.append(svg.group(bars, words, class_="pick", data_layers=layer_numbers(column.layers)))
    if column.join:
        x = anchors.ring(number)
        marks.append(svg.path(_ring(x, anchors.frame.middle), class_="ring"))
        boxes.append((x - 4, anchors.frame.middle - 6, x + 4, anchors.frame.middle + 6))
    base = anchors.frame.top + anchors.frame.height
    middle = anchors.geometry.middles[number]
    names = _title_lines(column, anchors.geometry.pitch)
    repeats = f"×{column.times}"
    split = column.words
    if column.times > 1 and not names[-1].endswith(repeats):  # the split stands in the glyph's title, too
        split = f"{repeats}, {split}" if len(f"{repeats}, {split}") * 5 <= anchors.geometry.pitch else repeats
    for line, words in enumerate((*names, split)):
        look = "dim tiny" if line == len(names) else "name"
        marks.append(svg.text(middle, base - 30 + 12 * line, words, class_=look, text_anchor="middle"))
    return marks, boxes


def _title_lines(column: Column, pitch: float) -> tuple[str, ...]:
    """The name of a column and its repeats in one line where it has room, else its name in two."""
    times = f"×{column.times}" if column.times > 1 else ""
    whole = f"{column.title} {times}".strip()
    if len(whole) * 6.6 <= pitch or not times:
        return (whole,)
    kind = column.title.rstrip("0123456789-…")
    return kind, column.title[len(kind) :]


def _ring(x: float, y: float) -> str:
    return f"M{svg.number(x - 3.5)} {svg.number(y)}a3.5 5 0 1 1 7 0a3.5 5 0 1 1 -7 0"


def _labels(places: list[tuple[tuple[float, float], float]], taken: list[svg.Box], unit: ByteUnit) -> Iterator[str]:
    """Numbers beside their ribbons; one that finds no free place is left out."""
    for (x, y), size in places:
        words = unit.number(size)
        half = 3.4 * len(words) + 1
        for dy in (0, -9, 9, 18, -18):
            box = (x - half, y + dy - 9, x + half, y + dy + 2)
            if not svg.overlaps(box, taken):
                taken.append(box)
                yield svg.text(x, y + dy, words, class_="label cut-ink halo", text_anchor="middle")
                break
