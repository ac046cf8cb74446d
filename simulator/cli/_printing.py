"""What the commands print for people, in rich tables, and for programs, in JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from simulator.cli._tables import new_console, new_table, print_table, say
from simulator.terminal import folded
from simulator.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from simulator.cluster import Cluster
    from simulator.report.interval import StepInterval
    from simulator.report.metrics import Report
    from simulator.run import Run
    from simulator.workload import Profile

JSON_SCHEMA = 1
"""Raised where a key of `--json` goes or means something else; new keys may come without."""
_COMPARED = ("step", "samples/s", "speed-up", "balance", "sent", "peak memory", "fits", "bubble")
_MAY_GO = ("samples/s", "speed-up", "balance", "bubble")
"""Columns of a comparison that a narrow terminal does not get."""
MATRIX_DEVICES = 16  # a larger matrix is left to --json
BUSIEST_LINKS = 5


def write_trace(done: Run, cluster: Cluster, path: str) -> None:
    """Write the run as a Chrome trace."""
    from simulator import files
    from simulator.report import chrome_trace

    files.write_text_atomic(path, json.dumps(chrome_trace.trace(done.graph, cluster, done.timeline), allow_nan=False))


def print_json(value: Mapping[str, object], *notes: str) -> None:
    """`value` on stdout behind the number of its schema (docs/json.md), the notes on stderr."""
    print(json.dumps({"schema": JSON_SCHEMA, **value}, allow_nan=False))
    for note in filter(None, notes):
        print(folded(f"note: {note}", sys.stderr), file=sys.stderr)


@contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """A line on the terminal that follows what takes long; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("working") as status:
        yield status.update


def print_report(
    report: Report,
    schedule: str,
    cluster: Cluster,
    batch_note: str,
    notes: Sequence[str],
    trace: str | None,
    interval: StepInterval,
) -> None:
    """One step in full: figures, devices, who sends what to whom, busiest links; `trace` is the file written.

    batch_note: why this batch size, where nobody asked for one. interval: of the step.
    """
    console = new_console()
    parts = "1 micro-batch" if report.microbatches == 1 else f"{report.microbatches} micro-batches"
    title = f"{report.model} on {report.cluster}, {cluster.workers} devices: {report.strategy or 'a plan'}"
    batch = f"batch {report.batch_size}{batch_note} in {parts}"
    say(console, f"{title}, {batch}, schedule {schedule}")
    _say_notes(console, notes)
    _print_sizes(console, [report])
    figures = new_table("", "", header=False)
    for name, value in _figures(report):
        figures.add_row(name, value)
        if name == "step" and (varied := format_time(interval.middle_s)) != value:
            figures.add_row("as devices vary", varied)
        if name == "step" and interval.parts:
            between = f"{format_time(interval.low_s)} to {format_time(interval.high_s)}"
            figures.add_row("in 9 of 10 steps", f"{between} ({', '.join(map(_part, interval.parts.items()))})")
            if interval.unknown:
                figures.add_row("  not included", "; ".join(interval.unknown))
    console.print(figures, end="\n\n")
    print_table(console, _device_table(report), ("exposed comm.", "idle", "sent", "received"))
    if report.communication_bytes.total and len(report.devices) <= MATRIX_DEVICES:
        console.print()
        print_table(console, _matrix_table(report))
    links = sorted((link for link in report.links if link.bytes), key=lambda link: -link.utilisation)
    if links:
        busiest = new_table("busiest links", "tier", "bytes", "utilisation")
        for link in links[:BUSIEST_LINKS]:
            busiest.add_row(link.name, link.tier, format_bytes(link.bytes), f"{link.utilisation:.1%}")
        console.print()
        print_table(console, busiest)
    _print_trace(console, trace)


def _part(named: tuple[str, tuple[float, float]]) -> str:
    """A cause of an interval with its larger side."""
    return f"{named[0]} {format_time(max(named[1]))}"


def print_comparison(
    profile: Profile,
    cluster: Cluster,
    reports: Sequence[Report],
    failed: Mapping[str, str],
    batch_note: str,
    notes: Sequence[str],
    trace: str | None,
) -> None:
    """One row per strategy, fastest first; then those that could not be built. `trace` is the first one's file."""
    console = new_console()
    batch = f", batch {reports[0].batch_size}{batch_note}" if reports else ""
    say(console, f"{profile.model} on {cluster.name}, {cluster.workers} devices{batch}")
    _say_notes(console, notes)
    _print_sizes(console, reports)
    rows = [_comparison_row(report) for report in reports]
    table = new_table("strategy", *_COMPARED, last="bottleneck")
    for row in rows:
        table.add_row(row["strategy"], *(row[name] for name in _COMPARED), row["bottleneck"])
    for name in failed:
        table.add_row(name, *("-" for _ in _COMPARED), "cannot be built")
    print_table(console, table, _MAY_GO)
    for name, why in failed.items():
        say(console, why if why.startswith(name) else f"{name}: {why}")
    for report in reports:
        if report.verdict:
            say(console, f"{report.strategy}: {report.verdict}")
    _print_trace(console, trace if reports else None)


def _comparison_row(report: Report) -> dict[str, str]:
    return {
        "strategy": report.strategy,
        "step": format_time(report.step_s),
        "samples/s": f"{report.samples_per_s:,.1f}",
        "speed-up": f"{report.speedup:.2f}x",
        "balance": f"{report.load_balance_ratio:.3f}",
        "sent": format_bytes(report.communication_bytes.total),
        "peak memory": format_bytes(report.peak_memory_bytes),
        "fits": {"fits": "yes", "does not fit": "no"}.get(report.fit, report.fit),
        "bubble": f"{report.bubble_ratio:.1%}",
        "bottleneck": f"{report.bottleneck.resource} {report.bottleneck.share:.0%}",
    }


def _say_notes(console: Console, notes: Iterable[str]) -> None:
    for note in filter(None, notes):
        say(console, f"note: {note}")


def _print_sizes(console: Console, reports: Sequence[Report]) -> None:
    """What was not measured at its size, and each step's band; strategies are named where there are several."""
    for report in reports:
        if report.sizes_note:
            which = f"{report.strategy}, " if len(reports) > 1 else ""
            band = f"; step {' to '.join(map(format_time, report.step_band_s))}" if report.step_band_s else ""
            say(console, f"note: {which}{report.sizes_note}{band}")


def _print_trace(console: Console, path: str | None) -> None:
    if path:
        say(console, f"trace: {path}, opens in ui.perfetto.dev")


def _figures(report: Report) -> list[tuple[str, str]]:
    sent = report.communication_bytes
    split = ", ".join(
        f"{name} {format_bytes(size)}"
        for name, size in (
            ("forward", sent.forward),
            ("backward", sent.backward),
            ("synchronisation", sent.synchronisation),
        )
        if size
    )
    figures = [
        ("step", format_time(report.step_s)),
        ("throughput", f"{report.samples_per_s:,.1f} samples/s"),
        ("speed-up", f"{report.speedup:.2f}x over one device, efficiency {report.efficiency:.0%}"),
        ("bubble", f"{report.bubble_ratio:.1%}"),
        ("load balance ratio", f"{report.load_balance_ratio:.3f}"),
        ("communication", format_bytes(sent.total) + (f" ({split})" if split else "")),
        ("peak memory", f"{format_bytes(report.peak_memory_bytes)}, {report.verdict or 'fits'}"),
        ("bottleneck", str(report.bottleneck)),
    ]
    if report.dollars_per_step is not None:
        figures.append(("cost", f"${report.dollars_per_step * 1e6 / report.batch_size:,.2f} per million samples"))
    return figures


def _device_table(report: Report) -> Table:
    launched = any(device.launch_s for device in report.devices)
    waits = [*["launches"] * launched, "exposed comm.", "bubble", "idle"]
    table = new_table("device", "compute", *waits, "busy", "sent", "received", "peak memory")
    for number, device in enumerate(report.devices):
        capacity = f" of {format_bytes(device.memory_bytes)}" if device.memory_bytes is not None else ""
        fits = device.memory_bytes is None or device.peak_memory_bytes <= device.memory_bytes
        table.add_row(
            f"{number} {device.name}",
            format_time(device.compute_s),
            *[format_time(device.launch_s)] * launched,
            format_time(device.exposed_communication_s),
            format_time(device.bubble_s),
            format_time(device.idle_s),
            f"{device.utilisation:.1%}",
            format_bytes(device.sent_bytes),
            format_bytes(device.received_bytes),
            f"{format_bytes(device.peak_memory_bytes)}{capacity}{'' if fits else ' no'}",
        )
    return table


def _matrix_table(report: Report) -> Table:
    table = new_table("from \\ to", *(str(number) for number in range(len(report.devices))))
    for number, row in enumerate(report.communication_bytes.matrix):
        table.add_row(str(number), *(format_bytes(size) if size else "." for size in row))
    return table
