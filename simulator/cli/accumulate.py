"""Gradient accumulation: step time and peak memory of a large batch by number of micro-batches.

    shardscope accumulate vgg16 --cluster t4-g4dn --devices 1 --batch-size 512 --memory 8GiB

With --workers 8 the step has the gradients of data parallelism over 8 devices, however many there are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from simulator import units
from simulator.cli import _effects, _options, _plan_files, _printing, _strategy, _tables
from simulator.one_line_parser import count, option
from simulator.terminal import say

if TYPE_CHECKING:
    from simulator.studies.accumulation import Choice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser)
    option(parser, "--strategy NAME", "one that takes micro-batches (default data)", default="data")
    option(parser, "--workers N", "logical workers, a multiple of the devices", count)
    option(parser, "--plan-out FILE", "write the best plan (JSON)")
    option(parser, "--json", "print all choices as JSON instead")
    _strategy.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    from simulator.studies.accumulation import best, choices

    _effects.check_step(args)
    profile = _options.read_profile(args)
    cluster = _options.read_cluster(args, args.sync)
    options = {"schedule": args.schedule, **_strategy.read(args, args.strategy)}
    make = partial(_options.make_plan, args.strategy, profile, cluster, args, **options)
    candidates = choices(
        profile,
        cluster,
        lambda count: make(microbatches=count),
        args.batch_size or profile.batch_size,
        workers=args.workers,
        runtime=_options.read_runtime(args, profile),
    )
    fastest = best(candidates)
    if args.plan_out:
        _plan_files.write_plan(fastest.plan, args.plan_out, args)
    notes = _printing.machine_notes(profile, cluster, args.strict)
    if args.json:
        plain = [{name: value for name, value in asdict(choice).items() if name != "plan"} for choice in candidates]
        _printing.print_json({"choices": plain, "best": candidates.index(fastest)}, *notes)
        return
    devices = units.counted(cluster.workers, "device")
    title = f"{profile.model} on {devices} of {cluster.name}, batch {fastest.plan.batch_size}"
    _print(candidates, fastest, title, notes)


def _print(candidates: list[Choice], fastest: Choice, title: str, notes: Sequence[str]) -> None:
    say(title)
    size = f"{fastest.microbatches} micro-batch{'es' * (fastest.microbatches > 1)} of {fastest.microbatch_size}"
    needs = f"{'fits' if fastest.fits else 'does not fit'}: needs {units.format_bytes(fastest.peak_memory_bytes)}"
    speed = f"{units.format_time(fastest.step_s)} a step, {fastest.samples_per_s:,.1f} samples/s"
    say(f"best: {size}, {speed}; {needs}")
    _printing.say_notes(notes)
    columns = ("samples each", "step", "samples/s", "peak memory", "fits", "whole shares")
    table = _tables.new_table("micro-batches", *columns, last="")
    for choice in candidates:
        table.add_row(
            str(choice.microbatches),
            str(choice.microbatch_size),
            units.format_time(choice.step_s),
            f"{choice.samples_per_s:,.1f}",
            units.format_bytes(choice.peak_memory_bytes),
            "yes" if choice.fits else "no",
            "yes" if choice.whole_shares else "no",
            "best" if choice is fastest else "",
        )
    _tables.print_table(table, ("whole shares",))
