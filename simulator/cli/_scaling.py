"""What `scale` prints and draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.cli import _tables
from simulator.units import format_bytes, format_time

if TYPE_CHECKING:
    from simulator.studies.scaling import ScalingResult


def print_points(points: Sequence[ScalingResult], title: str, note: str, written: Sequence[str]) -> None:
    """One row per point; below, what limits each."""
    console = _tables.new_console()
    _tables.say(console, title)
    if note:
        _tables.say(console, f"note: {note}")
    for text in dict.fromkeys(point.sizes_note for point in points if point.sizes_note):
        which = [str(point.devices) for point in points if point.sizes_note == text]
        _tables.say(console, f"note: on {', '.join(dict.fromkeys(which))}: {text}")
    epochs = any(point.epoch_s is not None for point in points)
    columns = ("devices", "step", "samples/s", "speed-up", "efficiency", "overhead", "exposed", "sent", "memory")
    table = _tables.new_table("sync", *columns, *(("epoch", "$/epoch") if epochs else ()))
    for point in points:
        table.add_row(point.architecture, *_cells(point), *(_epoch(point) if epochs else ()))
    _tables.print_table(console, table, ("speed-up", "exposed", "overhead", "sent"))
    _tables.say(console, "overhead: part of the step in which a worker does not compute; memory: largest device")
    for point in points:
        if point.bottleneck is not None:
            _tables.say(console, f"{point.architecture} on {point.devices}: {point.bottleneck}")
        if point.verdict:
            _tables.say(console, f"{point.architecture} on {point.devices} {point.verdict}")
    for path in written:
        _tables.say(console, f"wrote {path}")


def _cells(point: ScalingResult) -> tuple[str, ...]:
    return (
        str(point.devices),
        format_time(point.step_s),
        f"{point.samples_per_s:,.1f}",
        f"{point.speedup:.2f}x",
        f"{point.efficiency:.1%}",
        f"{point.communication_share:.1%}",
        format_time(point.exposed_communication_s),
        format_bytes(point.sent_bytes),
        format_bytes(max(use.peak_memory_bytes for use in point.uses)),
    )


def _epoch(point: ScalingResult) -> tuple[str, str]:
    return (
        "-" if point.epoch_s is None else format_time(point.epoch_s),
        "-" if point.dollars_per_epoch is None else f"{point.dollars_per_epoch:,.2f}",
    )
