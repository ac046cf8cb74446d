"""The columns of the partition figure: stretches of the folded network with the splits of a plan, few enough to read.

The glyphs of a lane are its chains with equal splits put together; where there are more columns than can be drawn,
repeats of the same columns become one, then neighbours do. Of a split what makes no difference is left out: shards that
one device holds side by side are one cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

import numpy as np

from dashboard.state.folding import Chain, Stretch, seconds_of, stretches
from simulator.plan import Plan, Sharding
from simulator.taskgraph import Floats
from simulator.workload import Profile

MOST_COLUMNS = 22
MOST_BESIDE = 3
MOST_SLICES = 12
_LONGEST_PERIOD = 6
JOIN = -1
"""The lane that stands for the place where the lanes of a column join."""
LETTERS = {"channel": "c", "height": "s", "width": "s", "reduce": "r", "copy": "×"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyph:
    """Layers that are split alike; `splits` has one entry, or several where neighbours were put together.

    more: how many further glyphs of the lane are not drawn.
    """

    layers: tuple[int, ...]
    splits: tuple[Split, ...]
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A stretch, or `times` repeats of it, or neighbours; lanes hold glyphs, the heaviest lane first.

    lane_layers: all layers of each lane. join: the layers where lanes meet, empty without. See Stretch for the rest.
    """

    title: str
    layers: tuple[int, ...]
    lanes: tuple[tuple[Glyph, ...], ...]
    lane_layers: tuple[tuple[int, ...], ...]
    join: tuple[int, ...] = ()
    skips: bool = False
    open_lanes: int = 0
    times: int = 1

    @property
    def words(self) -> str:
        """How its heaviest lane begins, and how many other splits the column holds: "4 c +2"."""
        splits = {split.words for lane in self.lanes for glyph in lane for split in glyph.splits}
        first = self.lanes[0][0].splits[0].words
        return first if len(splits) == 1 else f"{first} +{len(splits) - 1}"

    def place_of(self) -> dict[int, int]:
        """The lane of each layer, JOIN for those where lanes meet."""
        lanes = {layer: number for number, layers in enumerate(self.lane_layers) for layer in layers}
        return lanes | dict.fromkeys(self.join, JOIN)


def columns_of(profile: Profile, plan: Plan, most: int = MOST_COLUMNS) -> tuple[Column, ...]:
    """At most `most` columns that hold every layer once, from first to last."""
    columns = [_column(profile, plan, stretch) for stretch in stretches(profile)]
    while len(columns) > most and (run := longest_repeat([_split_alike(column) for column in columns])):
        columns = _folded(columns, *run, whole=True, most=most)
    while len(columns) > most and (run := longest_repeat([_built_alike(column) for column in columns])):
        columns = _folded(columns, *run, whole=False, most=most)
    while len(columns) > most:
        columns = _neighbours_joined(profile, columns)
    return tuple(columns)


def by_column(columns: Sequence[Column], values: Floats) -> Floats:
    """Sums over each column's layers of values (layers, ...), shape (columns, ...)."""
    return np.stack([values[list(column.layers)].sum(axis=0) for column in columns])


def _column(profile: Profile, plan: Plan, stretch: Stretch) -> Column:
    return Column(
        title=stretch.title,
        layers=stretch.layers,
        lanes=tuple(_glyphs(profile, plan, lane) for lane in stretch.lanes),
        lane_layers=tuple(tuple(layer for chain in lane for layer in chain) for lane in stretch.lanes),
        join=stretch.join,
        skips=stretch.skips,
        open_lanes=stretch.open_lanes,
    )


def _glyphs(profile: Profile, plan: Plan, lane: Sequence[Chain]) -> tuple[Glyph, ...]:
    glyphs: list[tuple[float, Glyph]] = []
    for split, same in groupby(lane, key=lambda chain: _split_of(profile, plan, chain)):
        chains = list(same)
        layers = tuple(layer for chain in chains for layer in chain)
        weight = sum(seconds_of(profile, chain) for chain in chains)
        glyphs.append((weight, Glyph(layers=layers, splits=(split,))))
    if len(glyphs) <= MOST_BESIDE:
        return tuple(glyph for _, glyph in glyphs)
    return (replace(max(glyphs, key=lambda pair: pair[0])[1], more=len(glyphs) - 1),)


def _split_of(profile: Profile, plan: Plan, chain: Chain) -> Split:
    """The split of the layer of a chain that computes the longest."""
    heaviest = max(chain, key=lambda i: profile.layers[i].forward_s + profile.layers[i].backward_s)
    return effective_split(plan.placements[profile.layers[heaviest].name])


def _split_alike(column: Column) -> object:
    return _built_alike(column), tuple(tuple(glyph.splits for glyph in lane) for lane in column.lanes)


def _built_alike(column: Column) -> object:
    kind = column.title.rstrip("0123456789")
    return kind, column.times, len(column.lanes), column.skips, column.open_lanes, bool(column.join)


def longest_repeat(marks: Sequence[object], longest: int = _LONGEST_PERIOD) -> tuple[int, int, int] | None:
    """(first, period, repeats) of the run of equal periods that folding shortens the most, None where none repeats."""
    best: tuple[int, int, int] | None = None
    for period in range(1, longest + 1):
        first = 0
        while first < len(marks):
            length = period
            while first + length < len(marks) and marks[first + length] == marks[first + length - period]:
                length += 1
            repeats = length // period
            if repeats > 1 and (best is None or (repeats - 1) * period > (best[2] - 1) * best[1]):
                best = first, period, repeats
            first += length - period + 1
    return best


def _folded(columns: list[Column], first: int, period: int, repeats: int, *, whole: bool, most: int) -> list[Column]:
    """Repeats put on top of each other: all of them, or unless `whole` in as many groups as there is room for."""
    room = 1 if whole else max(1, (most - len(columns) + period * repeats) // period)
    size = -(-repeats // room)
    stacked = []
    for begin in range(0, repeats, size):
        count = min(size, repeats - begin)
        at = first + begin * period
        stacked += [_stacked([columns[at + offset + period * i] for i in range(count)]) for offset in range(period)]
    return columns[:first] + stacked + columns[first + period * repeats :]


def _stacked(same: Sequence[Column]) -> Column:
    """Columns with as many lanes as each other as one, lane upon lane."""
    lanes = []
    for number in range(len(same[0].lanes)):
        glyphs = [glyph for column in same for glyph in column.lanes[number]]
        splits = tuple(dict.fromkeys(split for glyph in glyphs for split in glyph.splits))
        kept = same[0].lanes[number]
        if len({tuple(glyph.splits for glyph in column.lanes[number]) for column in same}) == 1:
            parts = [tuple(g for column in same for g in column.lanes[number][i].layers) for i in range(len(kept))]
            lanes.append(tuple(replace(glyph, layers=layers) for glyph, layers in zip(kept, parts, strict=True)))
        else:
            layers = tuple(layer for glyph in glyphs for layer in glyph.layers)
            lanes.append((Glyph(layers=layers, splits=_thinned(splits)),))
    return replace(
        same[0],
        title=_range_title(same[0].title, same[-1].title),
        layers=tuple(layer for column in same for layer in column.layers),
        lanes=tuple(lanes),
        lane_layers=tuple(
            tuple(layer for column in same for layer in column.lane_layers[number])
            for number in range(len(same[0].lanes))
        ),
        join=tuple(layer for column in same for layer in column.join),
        times=sum(column.times for column in same),
    )


def _thinned(splits: tuple[Split, ...]) -> tuple[Split, ...]:
    """At most MOST_SLICES of them, evenly."""
    count = min(len(splits), MOST_SLICES)
    return tuple(splits[i * len(splits) // count] for i in range(count))


def _range_title(first: str, last: str) -> str:
    """e.g. res9-20 from res9 and res20."""
    kind = first.rstrip("0123456789-")
    start, end = first[len(kind) :].split("-")[0], last[len(last.rstrip("0123456789")) :]
    return f"{kind}{start}-{end}" if last.startswith(kind) else f"{first}…{last}"


def _neighbours_joined(profile: Profile, columns: list[Column]) -> list[Column]:
    """The two neighbours that compute the least as one column of one lane."""
    seconds = [seconds_of(profile, column.layers) for column in columns]
    at = min(range(len(columns) - 1), key=lambda i: seconds[i] + seconds[i + 1])
    pair = columns[at : at + 2]
    glyphs = [glyph for column in pair for lane in column.lanes for glyph in lane]
    splits = tuple(dict.fromkeys(split for glyph in glyphs for split in glyph.splits))
    layers = tuple(layer for column in pair for layer in column.layers)
    joined = Column(
        title=_range_title(pair[0].title.split("…")[0], pair[1].title.split("…")[-1]),
        layers=layers,
        lanes=((Glyph(layers=layers, splits=_thinned(splits)),),),
        lane_layers=(layers,),
        times=1,
    )
    return [*columns[:at], joined, *columns[at + 2 :]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A tensor's cells: rows are shares of the samples, columns shares of everything else.

    rows, columns: their shares, each adding up to 1. devices[row][column] holds that cell.
    """

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    devices: tuple[tuple[int, ...], ...]
    words: str

    @property
    def device_set(self) -> frozenset[int]:
        """The devices that hold a cell."""
        return frozenset(device for row in self.devices for device in row)


@lru_cache(maxsize=4096)
def effective_split(sharding: Sharding) -> Split:
    """The split of a sharding with equal rows, and equal columns, put together."""
    samples = sharding.axes["sample"]
    devices = np.array(sharding.devices, dtype=np.int64).reshape(samples, -1)  # (samples, all other axes)
    shares = np.array(sharding.samples or [1.0] * samples, dtype=np.float64)
    devices, rows = _merged(devices, shares / shares.sum())
    width = devices.shape[1]
    turned, columns = _merged(devices.T, np.full(width, 1 / width))
    cells = tuple(map(tuple, turned.T.tolist()))
    return Split(rows=tuple(rows), columns=tuple(columns), devices=cells, words=_words(sharding.axes, cells))


def _merged(table: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The rows of `table` in ascending order, equal ones once, with the sums of their shares."""
    rows, which = np.unique(table, axis=0, return_inverse=True)
    return rows, np.bincount(which.ravel(), weights=shares).tolist()


def _words(degrees: Mapping[str, int], cells: tuple[tuple[int, ...], ...]) -> str:
    """e.g. "8 n", "4n × 2c", "1 device"."""
    rows, columns = len(cells), len(cells[0])
    others = [name for name in LETTERS if degrees[name] > 1]
    letters = "".join(dict.fromkeys(LETTERS[name] for name in others)) or "c"
    if rows == columns == 1:
        return "1 device"
    if columns == 1:
        return f"{rows} n"
    if rows == 1:
        return f"{columns} {letters}"
    return f"{rows}n × {columns}{letters}"
