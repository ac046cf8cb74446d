"""Glyphs of the partition figure: a block's tensor, its cells in the colours of the devices that hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboard.figures import svg
from dashboard.figures.shades import Shades
from dashboard.state.columns import Column, Glyph, Split

MOST_LIT = 128
"""Devices up to which the cells of a selected one can be told from the others."""


def drawn_glyph(glyph: Glyph, column: Column, shades: Shades, box: tuple[float, float, float, float]) -> str:
    """One glyph of a column in a box of (left, top, width, height): its splits side by side, in an outline."""
    x, y, width, height = box
    each = width / len(glyph.splits)
    marks = [
        mark for i, split in enumerate(glyph.splits) for mark in _cells(split, shades, (x + i * each, y, each, height))
    ]
    marks.append(svg.rect(x, y, width, height, rx=2, class_="outline", fill="none"))
    if glyph.more:
        marks.append(svg.text(x + width / 2, y + height + 9, f"+{glyph.more}", class_="dim tiny", text_anchor="middle"))
    splits = ", then ".join(dict.fromkeys(split.words for split in glyph.splits))
    devices = sorted({device for split in glyph.splits for device in split.device_set})
    words = f"{column.title}: {splits} on {len(devices)} of {len(shades.node)} devices, {len(glyph.layers)} layers"
    layers = layer_numbers(glyph.layers if len(column.lanes) > 1 else column.layers)
    return svg.group(marks, words, class_="pick", data_layers=layers)


def _cells(split: Split, shades: Shades, box: tuple[float, float, float, float]) -> Iterator[str]:
    """Rectangles in the colours of their devices, areas true to the shares; runs of one colour are one where thin."""
    x, y, width, height = box
    across = 0.0
    for column, share in enumerate(split.columns):
        devices = [row[column] for row in split.devices]
        for top, size, device, group in _runs(split.rows, devices, shades, height):
            yield svg.rect(
                x + across * width, y + top, share * width, size, fill=shades.colours[device],
                class_="cell", data_devices=" ".join(map(str, group)) if len(shades.node) <= MOST_LIT else None,
            )  # fmt: skip
        across += share


def _runs(
    shares: Sequence[float], devices: Sequence[int], shades: Shades, height: float
) -> Iterator[tuple[float, float, int, list[int]]]:
    """(top, size, device, all devices) of runs: rows below 1.2 px are put together by node, to 2 px at least."""
    thin = min(shares) * height < 1.2
    top, size, first = 0.0, 0.0, devices[0]
    members: list[int] = []
    for share, device in zip(shares, devices, strict=True):
        change = device != first if not thin else shades.node[device] != shades.node[first] and size >= 2.0
        if members and change:
            yield top, size, first, members
            top, size, first, members = top + size, 0.0, device, []
        members.append(device)
        size += share * height
    yield top, size, first, members


def layer_numbers(layers: Sequence[int]) -> str:
    """Layers as the browser reads them."""
    return " ".join(map(str, layers))
