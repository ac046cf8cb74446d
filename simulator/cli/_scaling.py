"""What `scale` prints and draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simulator.cli import _tables
from simulator.cli._answers import dollars
from simulator.cli._printing import say_notes
from simulator.terminal import say
from simulator.units import format_bytes, format_duration, format_time

if TYPE_CHECKING:
    from simulator.studies.scaling import ScalingResult


def print_points(
    points: Sequence[ScalingResult], title: str, notes: Sequence[str], written: Sequence[str], verbose: bool
) -> None:
    """The fastest and the cheapest point, then a row per point; below, what limits the largest, verbose: each."""
    say(title)
    say(*_answer(points))
    print()
    priced = any(point.dollars_per_sample is not None for point in points)
    epochs = any(point.epoch_s is not None for point in points)
    columns = ("devices", "step", "samples/s", "speed-up", "efficiency", "overhead", "exposed", "sent", "memory")
    more = ("$/million",) * priced + ("epoch",) * epochs + ("$/epoch",) * (epochs and priced)
    table = _tables.new_table("sync", *columns, *more)
    for point in points:
        table.add_row(point.architecture, *_cells(point), *(_cost_cells(point)[title] for title in more))
    _tables.print_table(table, ("exposed", "overhead", "sent", "speed-up", "$/million"))
    say("overhead: part of the step in which a worker does not compute; memory: largest device")
    last = {point.architecture: point for point in points}
    for point in points:
        if point.bottleneck is not None and (verbose or last[point.architecture] is point):
            say(f"{_name(point)}: {point.bottleneck}")
        if point.verdict:
            say(f"{_name(point)}: {point.verdict}")
    say_notes([*notes, *_sizes(points)])
    for path in written:
        say(f"wrote {path}")


def _answer(points: Sequence[ScalingResult]) -> Iterator[str]:
    from simulator.report.metrics import Bottleneck

    fitting = [point for point in points if not point.verdict.startswith("does not fit")]
    if not fitting:
        yield "nothing fits: make it smaller, or shard its states (simulate --zero)"
        return
    best = max(fitting, key=lambda point: point.samples_per_s)
    speed = f"{best.samples_per_s:,.1f} samples/s, {best.speedup:.2f}x one device"
    yield f"fastest: {_name(best)}, step {format_time(best.step_s)}, {speed}; {best.verdict or 'fits'}"
    if best.bottleneck is not None:
        limit = best.bottleneck
        yield f"limited by {Bottleneck(resource=limit.resource, worst=limit.name, share=limit.kind_share)}"
        if best.bottleneck.gains:
            gain = max(best.bottleneck.gains, key=lambda gain: gain.speedup)
            yield f"best change: {gain.change} would make it {gain.speedup:.2f}x faster"
    cheapest = min(fitting, key=lambda point: (float(f"{point.dollars_per_sample or 0:.3g}"), -point.samples_per_s))
    if cheapest.dollars_per_sample is not None:
        yield f"cheapest: {_name(cheapest)}, {dollars(1e6 * cheapest.dollars_per_sample)} per million samples"


def _name(point: ScalingResult) -> str:
    return f"{point.architecture} on {point.devices}"


def _sizes(points: Sequence[ScalingResult]) -> Iterator[str]:
    """What was not measured at its size, with the numbers of devices that compute there."""
    for text in dict.fromkeys(point.sizes_note for point in points if point.sizes_note):
        which = dict.fromkeys(str(point.devices) for point in points if point.sizes_note == text)
        yield f"on {', '.join(which)}: {text}"


def _cost_cells(point: ScalingResult) -> dict[str, str]:
    """Cells by the titles of their columns."""
    sample, epoch, epoch_s = point.dollars_per_sample, point.dollars_per_epoch, point.epoch_s
    return {
        "$/million": "-" if sample is None else dollars(1e6 * sample),
        "epoch": "-" if epoch_s is None else format_duration(epoch_s),
        "$/epoch": "-" if epoch is None else dollars(epoch),
    }


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
