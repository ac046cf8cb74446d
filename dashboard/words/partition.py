"""The partition figure in words: its head, its heaviest nets, and the figures of each strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.state.columns import Column, by_column
from dashboard.state.flows import BETWEEN, Flows
from dashboard.state.simulating import Glance
from dashboard.words.volume import ByteUnit, volume_unit
from simulator.taskgraph import Floats
from simulator.workload import Profile

_HEAVIEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLine:
    """Nets of one producer with the same readers: how many, the connectivity - 1 of the widest, bytes, their share.

    producer, readers: blocks, named as in the figure. layer: the producer's own name. between: bytes between nodes.
    layers: the producer, then its readers. of_states: whether they hold a parameter together.
    """

    producer: str
    layer: str
    readers: str
    nets: int
    connectivity: int
    bytes: float
    between: float
    share: float
    layers: tuple[int, ...]
    of_states: bool


def heaviest_nets(profile: Profile, flows: Flows, columns: Sequence[Column]) -> list[NetLine]:
    """The ten lines with the most bytes; activations count there and back, as the plan's communication volume does."""
    states = {"gradients of its copies": flows.gradient_bytes, "gathers of its parameters": flows.gathered_bytes}
    tables = {"": flows.activation_bytes, **states}
    nets = [(float(size.sum()), layer, of, size) for of, table in tables.items() for layer, size in enumerate(table)]
    heaviest = sorted((net for net in nets if net[0] > 0), key=lambda net: -net[0])[:_HEAVIEST]
    block = {layer: column.title for column in columns for layer in column.layers}
    return [_net_line(profile, flows, block, layer, of, size) for _, layer, of, size in heaviest]


def _net_line(
    profile: Profile, flows: Flows, block: Mapping[int, str], layer: int, of_states: str, amounts: Floats
) -> NetLine:
    pairs = zip(flows.producer.tolist(), flows.reader.tolist(), strict=True)
    readers = [] if of_states else [reader for producer, reader in pairs if producer == layer]
    blocks = list(dict.fromkeys(block[reader] for reader in readers))
    more = f" and {len(blocks) - 2} more" if len(blocks) > 2 else ""
    return NetLine(
        producer=block[layer], layer=profile.layers[layer].name,
        readers=of_states or "→ " + ", ".join(blocks[:2]) + more,
        nets=int((flows.replica_pieces if of_states else flows.crossing_shards)[layer]),
        connectivity=int(flows.replica_devices[layer]) - 1 if of_states else int(flows.crossing_targets[layer]),
        bytes=float(amounts.sum()), between=float(amounts[BETWEEN]), share=float(amounts.sum()) / flows.total_bytes,
        layers=(layer, *readers), of_states=bool(of_states),
    )  # fmt: skip


def head_sentence(columns: Sequence[Column], now: Glance, data: Glance | None, workers: int) -> str:
    """What the plan saves against data parallelism and what it pays for that, in one or two sentences."""
    if now.by_layer is None:
        return ""
    own, unit = by_column(columns, now.by_layer), volume_unit(now.total_bytes)
    idle = f"Only {now.computing} of {workers} devices compute. " if now.computing < workers else ""
    if data is None or data.by_layer is None or data is now:
        at = int(own.sum(axis=1).argmax())
        most = float(own[at].sum())
        most_words = f"{columns[at].title} moves the most, {unit.words(most)} a step."
        return idle + (most_words if most else "Nothing crosses between devices.")
    other = by_column(columns, data.by_layer)
    return idle + _saving(columns, own, other, unit) + _price(columns, own, other, unit)


def _saving(columns: Sequence[Column], own: Floats, other: Floats, unit: ByteUnit) -> str:
    saved = other.sum(axis=1) - own.sum(axis=1)
    at = int(np.argmax(saved))
    if saved[at] <= 0.01 * other.sum():
        return "No block moves notably fewer bytes than under data parallelism. "
    before, after = float(other[at].sum()), float(own[at].sum())
    return f"{columns[at].title} moves {unit.words(after) if after else 'nothing'} instead of {unit.words(before)}. "


def _price(columns: Sequence[Column], own: Floats, other: Floats, unit: ByteUnit) -> str:
    paid = own[:, 0] - other[:, 0]
    at = int(np.argmax(paid))
    if paid[at] <= 0:
        return ""
    return f"The price: {unit.words(float(own[at, 0]))} of activations cross after {columns[at].title}."


def moved_words(now: Glance, data: Glance | None) -> str:
    """What a step moves, how much of it between nodes, and what data parallelism would move."""
    if not now.total_bytes:
        return "It moves nothing. "
    unit = volume_unit(now.total_bytes)
    if now.between_bytes is None:
        return f"It moves {unit.words(now.total_bytes)} a step. "
    far = f"{unit.words(now.between_bytes)} of it" if now.between_bytes else "none of it"
    if data is None or data.between_bytes is None or not data.ran or data.configuration == now.configuration:
        return f"It moves {unit.words(now.total_bytes)} a step, {far} between nodes. "
    other = f"{unit.words(data.total_bytes)}, {unit.words(data.between_bytes)} between nodes"
    return f"It moves {unit.words(now.total_bytes)} a step, {far} between nodes (data parallelism: {other}). "


def against(step_s: float, data_s: float) -> str:
    """e.g. "10.4× faster than data parallelism", "4.2× slower than data parallelism", "as fast as data parallelism"."""
    ratio = data_s / step_s
    if abs(ratio - 1) < 0.005:
        return "as fast as data parallelism"
    words = f"{max(ratio, 1 / ratio):.1f}×" if max(ratio, 1 / ratio) >= 1.1 else f"{abs(step_s / data_s - 1):.0%}"
    return f"{words} {'faster' if ratio > 1 else 'slower'} than data parallelism"
