"""What the commands print for people, in tables and notes, and for programs, in JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, TextIO

from simulator import files
from simulator.cli._answers import Priced, answer
from simulator.cli._tables import TextTable, new_table, print_table
from simulator.device_names import unlike
from simulator.errors import InputError
from simulator.terminal import say
from simulator.units import counted, format_bytes, format_time

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.report.interval import StepInterval
    from simulator.report.metrics import Report
    from simulator.report.resource_use import DeviceUse
    from simulator.run import Run
    from simulator.workload import Profile

JSON_SCHEMA = 1
"""Raised where a key of `--json` goes or means something else; new keys may come without."""
MOST_ROWS = 16
"""Devices from which on equal ones are one row; rows from which on --verbose alone shows the rest."""
MOST_RUNS = 3
"""Runs of consecutive numbers by which a group of devices is named; more are counted."""
MATRIX_DEVICES = 16  # a larger matrix is left to --json
BUSIEST_LINKS = 5
LAYERS_TO_STEP = (0.85, 1.15)
"""Layers over the measured step: outside, a profile is worth a note."""


def write_trace(done: Run, cluster: Cluster, path: str) -> None:
    """Write the run as a Chrome trace."""
    from simulator.report import chrome_trace

    files.write_text_atomic(path, json.dumps(chrome_trace.trace(done.graph, cluster, done.timeline), allow_nan=False))


def print_json(value: Mapping[str, object], *notes: str) -> None:
    """`value` on stdout behind the number of its schema (docs/json.md), the notes on stderr."""
    print(json.dumps({"schema": JSON_SCHEMA, **value}, allow_nan=False))
    say_notes(notes, sys.stderr)


@contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """A line on the terminal that follows what takes long; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("working") as status:
        yield status.update


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is said around the answer of one step or of several."""

    of: Priced
    """What throughput and prices are of."""
    change: str
    """What would make the best step faster by most."""
    batch_note: str = ""
    """Why this batch size, where nobody asked for one."""
    notes: Sequence[str] = ()
    """What a reader should know besides, a line or two each."""
    trace: str | None = None
    """The file that the trace was written to."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why a strategy could not be built, by name."""
    verbose: bool = False
    """Whether everything is shown that is known."""


def print_report(report: Report, schedule: str, cluster: Cluster, interval: StepInterval, shown: Shown) -> None:
    """One step: the answer, notes, figures and devices; verbose: who sends what to whom, and the busiest links."""
    title = f"{report.model} on {report.cluster}, {counted(cluster.workers, 'device')}, {report.strategy or 'a plan'}"
    say(f"{title}, batch {report.batch_size}")
    say(*answer(report, cluster, interval, shown.change, shown.of))
    say_notes(shown.notes)
    figures = new_table("", "", header=False)
    for name, value in _figures(report, schedule, interval, shown):
        figures.add_row(name, value)
    print()
    print_table(figures)
    print()
    print_table(_device_table(report, shown.verbose), ("exposed comm.", "idle", "sent", "received"))
    if shown.verbose:
        _print_traffic(report)
    else:
        say("--verbose adds every device, who sends what to whom, and the busiest links")
    print_trace(shown.trace)


def _print_traffic(report: Report) -> None:
    if report.communication_bytes.total and len(report.devices) <= MATRIX_DEVICES:
        print()
        print_table(_matrix_table(report))
    links = sorted((link for link in report.links if link.bytes), key=lambda link: -link.utilisation)
    if links:
        busiest = new_table("busiest links", "tier", "bytes", "utilisation")
        for link in links[:BUSIEST_LINKS]:
            busiest.add_row(link.name, link.tier, format_bytes(link.bytes), f"{link.utilisation:.1%}")
        print()
        print_table(busiest)


def say_notes(notes: Iterable[str], stream: TextIO | None = None) -> None:
    say(*(f"note: {note}" for note in notes if note), stream=stream)


def print_trace(path: str | None) -> None:
    if path:
        say(f"trace: {path}, opens in ui.perfetto.dev")


def _figures(report: Report, schedule: str, interval: StepInterval, shown: Shown) -> Iterator[tuple[str, str]]:
    parts = "1 micro-batch" if report.microbatches == 1 else f"{report.microbatches} micro-batches"
    yield "batch", f"{report.batch_size}{shown.batch_note} in {parts}, schedule {schedule}"
    if interval.evidence:
        yield "stands on", interval.evidence.words
    if interval.parts:
        yield "uncertain by", ", ".join(f"{cause} {format_time(max(sides))}" for cause, sides in interval.parts.items())
    if interval.unknown:
        yield "  not included", "; ".join(interval.unknown)
    if report.sizes_note:
        yield "not measured", report.sizes_note
    if shown.of.per_sample > 1:
        yield "throughput", f"{report.samples_per_s:,.1f} samples/s of {shown.of.per_sample:,} {shown.of.name}"
    yield (
        "speed-up",
        f"{report.speedup:.2f}x over one device with its part of the batch, efficiency {report.efficiency:.0%}",
    )
    yield "bubble", f"{report.bubble_ratio:.1%}"
    yield "load balance ratio", f"{report.load_balance_ratio:.3f}"
    sent = report.communication_bytes
    by_pass = {"forward": sent.forward, "backward": sent.backward, "synchronisation": sent.synchronisation}
    split = ", ".join(f"{name} {format_bytes(size)}" for name, size in by_pass.items() if size)
    yield "communication", format_bytes(sent.total) + (f" ({split})" if split else "")


def _device_table(report: Report, verbose: bool) -> TextTable:
    """A row per device, or per group of equal ones where there are many."""
    launched = any(device.launch_s for device in report.devices)
    waits = [*["launches"] * launched, "exposed comm.", "bubble", "idle"]
    table = new_table("device", "compute", *waits, "busy", "sent", "received", "peak memory")
    made = {_device_numbers(device): device for device in report.devices}
    cells_of = {numbers: _device_cells(device, launched) for numbers, device in made.items()}
    rows = [cells_of[_device_numbers(device)] for device in report.devices]
    if verbose or len(rows) <= MOST_ROWS:
        for number, (device, cells) in enumerate(zip(report.devices, rows, strict=True)):
            table.add_row(f"{number} {device.name}", *cells)
        return table
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, cells in enumerate(rows):
        groups.setdefault(cells, []).append(number)
    for cells, numbers in list(groups.items())[:MOST_ROWS]:
        table.add_row(f"{len(numbers)}: {group_name(numbers)}", *cells)
    if len(groups) > MOST_ROWS:
        left = sum(map(len, list(groups.values())[MOST_ROWS:]))
        table.add_row(f"{left} more", *[""] * (len(table.columns) - 1))
    return table


def group_name(numbers: Sequence[int]) -> str:
    """A group's first runs of numbers, such as 0-7, 32-39."""
    from simulator.studies.explain import number_runs

    runs = number_runs(numbers)
    return ", ".join(runs[:MOST_RUNS]) + (", ..." if len(runs) > MOST_RUNS else "")


_device_numbers = attrgetter(
    "compute_s", "launch_s", "exposed_communication_s", "bubble_s", "idle_s", "utilisation", "sent_bytes",
    "received_bytes", "peak_memory_bytes", "memory_bytes",
)  # fmt: skip


def _device_cells(device: DeviceUse, launched: bool) -> tuple[str, ...]:
    capacity = f" of {format_bytes(device.memory_bytes)}" if device.memory_bytes is not None else ""
    fits = device.memory_bytes is None or device.peak_memory_bytes <= device.memory_bytes
    return (
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


def _matrix_table(report: Report) -> TextTable:
    table = new_table("from \\ to", *(str(number) for number in range(len(report.devices))))
    for number, row in enumerate(report.communication_bytes.matrix):
        table.add_row(str(number), *(format_bytes(size) if size else "." for size in row))
    return table


def machine_notes(profile: Profile, cluster: Cluster, strict: bool = False) -> list[str]:
    """What makes times look better or other than they will be, first of all that layers were modelled.

    strict: raise InputError where the devices are not the profiled one and nobody said how fast they are.
    """
    device_note = _device_note(profile, cluster)
    if strict and device_note and set(cluster.speeds[: cluster.workers]) == {1.0}:
        raise InputError(f"--strict: {device_note}")
    modelled = profile.notes.partition(" (")[0] if profile.notes.startswith("modelled") else ""
    of_machine = _links_note(cluster), _prices_note(cluster)
    return list(filter(None, [modelled, device_note, _layers_note(profile), *of_machine]))


def _layers_note(profile: Profile) -> str:
    """What speaks against the profile: its own doubt, or layers that add up to something else than its step."""
    if profile.doubt:
        return f"the profile is doubtful: {profile.doubt}"
    ratio = profile.layers_to_step
    if ratio is None or LAYERS_TO_STEP[0] <= ratio <= LAYERS_TO_STEP[1]:
        return ""
    return f"the profile's layers add up to {ratio:.2f} of its measured step, so times may be off by as much"


def _links_note(cluster: Cluster) -> str:
    """What share of their line rate the links from the first worker to the last and to servers give, where it was
    measured."""
    ends = cluster.workers - 1, len(cluster.devices) - 1
    crossed = [cluster.links[number] for end in ends for number in cluster.route(0, end)]
    shares = [
        f"{tier} {share.median:.0%} ({share.low:.0%} to {share.high:.0%})"
        for tier, share in dict.fromkeys((link.tier, link.achieved) for link in crossed)
        if share is not None and share.median != 1
    ]
    if not shares:
        return ""
    names = [name.replace("_", "-") for name in sorted(cluster.collectives)]
    which = names[0] if len(names) == 1 else f"{len(names)} collectives"
    measured = f"; {which} as measured" if names else ""
    return (
        f"links at their measured share of line rate: {', '.join(shares)}{measured}; --efficiency TIER=1: at full rate"
    )


def _prices_note(cluster: Cluster) -> str:
    """Which devices have no price where others have one, as parameter servers of a preset."""
    free = Counter(device.role for device in cluster.devices if device.dollars_per_hour is None)
    if not free or free.total() == len(cluster.devices):
        return ""
    return f"costs leave out {' and '.join(counted(*each[::-1]) for each in free.items())} without a price"


def _device_note(profile: Profile, cluster: Cluster) -> str:
    """A sentence when the cluster's devices are not the profiled one, otherwise nothing."""
    other = unlike(cluster, profile.device)
    if not other:
        return ""
    scaled = set(cluster.speeds[: cluster.workers]) != {1.0}
    advice = "they are scaled by the cluster's speed" if scaled else "scale them with --speed"
    return f"compute times were captured on {profile.device}, not {', '.join(other)}; {advice}"
