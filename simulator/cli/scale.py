"""Scaling study of data parallelism: throughput, cost and bottleneck by number of devices.

    shardscope scale vgg16 --cluster gcp-v100 --devices 1..32 --sync ring,ps

Devices: 1..32 is 1, 2, 4, ... 32; or numbers with commas between. Ways to synchronise (--sync), with commas between:
ring, halving-doubling, tree, hierarchical, hierarchical-tree, all-to-all; ps and ps-workers (parameter servers on
hosts of their own, or on workers), also as ps-async and ps-ssp, where workers do not wait for each other, and with
a number of servers, as ps:4.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli import _effects, _options, _printing, _tables
from simulator.cli._answers import Priced, dollars, priced
from simulator.cli._printing import say_notes
from simulator.errors import InputError, require
from simulator.one_line_parser import count, doublings, option, whole
from simulator.sweep.export import write_html, write_png
from simulator.terminal import say
from simulator.units import counted, format_bytes, format_duration, format_time

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.plan import Plan, Synchronisation
    from simulator.studies.architectures import Architecture
    from simulator.studies.scaling import ScalingResult, ScalingStudy

MOST_DEVICES = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "profile PROFILE", "profile file, or a name that `shardscope profiles` lists")
    machine = parser.add_argument_group("machine")
    option(machine, "--cluster CLUSTER", "cluster file, or a name that `shardscope clusters` lists", required=True)
    option(machine, "--devices N..M", "numbers of devices (default 1..64)", doublings, default="1..64")
    option(machine, "--servers K", "parameter servers of ps (default 1)", count)
    _options.add_overrides(machine)
    step = parser.add_argument_group("training step")
    option(step, "--sync NAMES", "ways to synchronise (default ring,ps)", default="ring,ps")
    option(step, "--staleness S", "steps that ps-ssp runs ahead (default 3)", whole)
    kind = step.add_mutually_exclusive_group()
    option(kind, "--weak", "--batch-size samples for each device, of unequal ones in the mean (default)")
    option(kind, "--strong", "all devices together have --batch-size samples")
    option(step, "--batch-size B", "samples (default: the profile's)", count)
    _options.add_gradients(step)
    shown = parser.add_argument_group("output")
    option(shown, "--epoch-samples N", "adds time and dollars per epoch", count)
    option(shown, "--plot FILE", "draw the study, as .html that needs no network, or its throughput as .png")
    option(shown, "--usage FILE.html", "draw the resource usage over the largest step of each way")
    _options.add_output(shown, "the points")


def run(args: argparse.Namespace) -> None:
    from simulator.studies.scaling import scale

    if args.plot and Path(args.plot).suffix not in (".html", ".png"):
        raise InputError(f"plot {args.plot}: its suffix says what to write, one of .html, .png")
    largest = args.devices[-1]
    require(largest <= MOST_DEVICES, "devices", largest, f"they are at most {MOST_DEVICES}")
    study, ways = _study(args), _architectures(args)
    points = list(scale(study, ways, args.devices))
    each = "per device (weak scaling)" if study.weak else "in all (strong scaling)"
    title = f"{study.profile.model} on {study.cluster_of(largest, 0).name}, batch {study.batch_size} {each}"
    if args.plot:
        _plot(points, title, Path(args.plot))
    if args.usage:
        write_html(_usages(study, ways, largest), Path(args.usage))
    notes = _printing.machine_notes(study.profile, study.cluster_of(largest, max(way.servers for way in ways)))
    if args.json:
        _printing.print_json({"points": [point.to_dict() for point in points]}, *notes)
    else:
        written = [path for path in (args.plot, args.usage) if path]
        _print_points(points, priced(study.profile), title, notes, written, args.verbose)


def _plot(points: Sequence[ScalingResult], title: str, path: Path) -> None:
    from simulator.studies.scaling_figure import figure, throughput

    if path.suffix == ".png":
        write_png(throughput(points, title), path)
    else:
        write_html([figure(points, title)], path)


def _usages(study: ScalingStudy, ways: Sequence[Architecture], devices: int) -> Iterator[dict[str, Any]]:
    """A figure of the resource usage on so many devices for every way to synchronise."""
    from simulator.report.usage import figure
    from simulator.studies.scaling import usage_at

    for way in ways:
        usage, cluster = usage_at(study, way, devices)
        title = f"{study.profile.model} on {cluster.name}: {way.name} on {counted(devices, 'device')}"
        yield figure(usage, cluster, title)


def _study(args: argparse.Namespace) -> ScalingStudy:
    import partitioners
    from simulator.plan import OPTIMIZERS, StepSettings
    from simulator.studies.scaling import ScalingStudy

    profile, optimizer = _options.read_profile(args), OPTIMIZERS.get(args.optimizer)

    def cluster_of(devices: int, servers: int) -> Cluster:
        machine = argparse.Namespace(**{**vars(args), "devices": devices, "servers": servers})
        return _options.read_cluster(machine, "ps" if servers else None)

    def plan_of(cluster: Cluster, batch_size: int, synchronisation: Synchronisation) -> Plan:
        step = StepSettings(batch_size=batch_size, synchronisation=synchronisation, optimizer_state=optimizer)
        return partitioners.make_plan("data", profile, cluster, step)

    return ScalingStudy(
        profile=profile,
        cluster_of=cluster_of,
        plan_of=plan_of,
        batch_size=args.batch_size or profile.batch_size,
        weak=not args.strong,
        epoch_samples=args.epoch_samples,
        runtime=_options.read_runtime(args, profile),
    )


def _architectures(args: argparse.Namespace) -> list[Architecture]:
    from simulator.plan import Synchronisation
    from simulator.studies.architectures import architecture

    plain = argparse.Namespace(**{**vars(args), "sync": None})
    options = _options.synchronisation(plain, Synchronisation())
    names = dict.fromkeys(name.strip() for name in args.sync.split(",") if name.strip())
    counts = {name: getattr(args, name) for name in ("servers", "staleness") if getattr(args, name) is not None}

    def ways(**changes: int) -> list[Architecture]:
        return [architecture(name, options, **{**counts, **changes}) for name in names]

    unused = {name for name, number in counts.items() if ways(**{name: number + 1}) == ways()}
    _effects.refuse(unused, f"--sync {args.sync} heeds none; leave it out")
    return ways()


def _print_points(
    points: Sequence[ScalingResult],
    of: Priced,
    title: str,
    notes: Sequence[str],
    written: Sequence[str],
    verbose: bool,
) -> None:
    """The fastest and the cheapest point, then a row per point; below, what limits the largest, verbose: each."""
    say(title)
    say(*_answer(points, of))
    print()
    costs = any(point.dollars_per_sample is not None for point in points)
    epochs = any(point.epoch_s is not None for point in points)
    columns = ("devices", "step", f"{of.name}/s", "speed-up", "efficiency", "overhead", "exposed", "sent", "memory")
    more = ("$/million",) * costs + ("epoch",) * epochs + ("$/epoch",) * (epochs and costs)
    table = _tables.new_table("sync", *columns, *more)
    for point in points:
        table.add_row(point.architecture, *_cells(point, of), *(_cost_cells(point, of)[title] for title in more))
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


def _answer(points: Sequence[ScalingResult], of: Priced) -> Iterator[str]:
    from simulator.report.metrics import Bottleneck

    fitting = [point for point in points if not point.verdict.startswith("does not fit")]
    if not fitting:
        yield "nothing fits: make it smaller, or shard its states (simulate --zero)"
        return
    best = max(fitting, key=lambda point: point.samples_per_s)
    speed = f"{best.samples_per_s * of.per_sample:,.1f} {of.name}/s, {best.speedup:.2f}x one device"
    yield f"fastest: {_name(best)}, step {format_time(best.step_s)}, {speed}; {best.verdict or 'fits'}"
    if best.bottleneck is not None:
        limit = best.bottleneck
        yield f"limited by {Bottleneck(resource=limit.resource, worst=limit.name, share=limit.kind_share)}"
        if best.bottleneck.gains:
            gain = max(best.bottleneck.gains, key=lambda gain: gain.speedup)
            yield f"best change: {gain.change} would make it {gain.speedup:.2f}x faster"
    cheapest = min(fitting, key=lambda point: (float(f"{point.dollars_per_sample or 0:.3g}"), -point.samples_per_s))
    if cheapest.dollars_per_sample is not None:
        million = dollars(1e6 * cheapest.dollars_per_sample / of.per_sample)
        yield f"cheapest: {_name(cheapest)}, {million} per million {of.name}"


def _name(point: ScalingResult) -> str:
    return f"{point.architecture} on {point.devices}"


def _sizes(points: Sequence[ScalingResult]) -> Iterator[str]:
    """What was not measured at its size, with the numbers of devices that compute there."""
    for text in dict.fromkeys(point.sizes_note for point in points if point.sizes_note):
        which = dict.fromkeys(str(point.devices) for point in points if point.sizes_note == text)
        yield f"on {', '.join(which)}: {text}"


def _cost_cells(point: ScalingResult, of: Priced) -> dict[str, str]:
    """Cells by the titles of their columns."""
    sample, epoch, epoch_s = point.dollars_per_sample, point.dollars_per_epoch, point.epoch_s
    return {
        "$/million": "-" if sample is None else dollars(1e6 * sample / of.per_sample),
        "epoch": "-" if epoch_s is None else format_duration(epoch_s),
        "$/epoch": "-" if epoch is None else dollars(epoch),
    }


def _cells(point: ScalingResult, of: Priced) -> tuple[str, ...]:
    return (
        str(point.devices),
        format_time(point.step_s),
        f"{point.samples_per_s * of.per_sample:,.1f}",
        f"{point.speedup:.2f}x",
        f"{point.efficiency:.1%}",
        f"{point.communication_share:.1%}",
        format_time(point.exposed_communication_s),
        format_bytes(point.sent_bytes),
        format_bytes(max(use.peak_memory_bytes for use in point.uses)),
    )
