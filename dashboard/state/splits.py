"""How a layer is split, without what makes no difference: shards that one device holds side by side are one cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from simulator.plan import Sharding

LETTERS = {"channel": "c", "height": "s", "width": "s", "reduce": "r", "copy": "×"}


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
    order = np.lexsort(table.T[::-1])
    lines = [(tuple(table[i].tolist()), float(shares[i])) for i in order]
    groups = [(row, sum(share for _, share in same)) for row, same in groupby(lines, key=lambda line: line[0])]
    return np.array([row for row, _ in groups], dtype=np.int64), [share for _, share in groups]


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
