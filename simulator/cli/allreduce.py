"""One all-reduce, message by message: what late devices and unequal links do to it.

    shardscope allreduce --cluster p3-8xlarge --devices 16 --size 100MB --late 3=5ms

A device passes a piece on as soon as it has it. In a simulated step each round of a collective waits for its slowest
pair; "in lockstep" says what that gives here, where the collective has its links for itself and no library chooses.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from simulator import units
from simulator.cli import _options, _printing, _tables
from simulator.errors import InputError
from simulator.one_line_parser import assignment, option, size, time, whole
from simulator.terminal import say

if TYPE_CHECKING:
    from simulator.studies.by_message import AllReduceByMessage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    machine = parser.add_argument_group("machine")
    _options.add_cluster(machine, "--cluster", required=True)
    _options.add_overrides(machine)
    option(parser, "--size SIZE", "summed by all devices (default 100MB)", size, default="100MB")
    option(parser, "--collective NAME", "ring or tree; by default both")
    kind = assignment("DEVICE=TIME, e.g. 3=5ms", whole, time)
    text = "a device that begins later than the others, by its number, e.g. 3=5ms"
    option(parser, "--late DEVICE=TIME", text, kind, repeatable=True)
    option(parser, "--overhead TIME", "of a device for each message, e.g. 1us", time, default="0")
    option(parser, "--json", "print when every device begins and ends as JSON instead")


def run(args: argparse.Namespace) -> None:
    from simulator.studies.by_message import all_reduce_by_message, collectives_by_message

    cluster = _options.read_cluster(args, None)
    names = [args.collective] if args.collective else collectives_by_message()
    begin_s, size_bytes, overhead_s = _beginnings(args.late, cluster.workers), args.size, args.overhead
    rows = [all_reduce_by_message(cluster, name, size_bytes, begin_s, overhead_s) for name in names]
    if args.json:
        plain = [
            {"collective": row.collective, "begin_s": row.begin_s.tolist(), "end_s": row.end_s.tolist(),
             "lockstep_s": row.lockstep_s} for row in rows
        ]  # fmt: skip
        _printing.print_json({"size_bytes": size_bytes, "collectives": plain}, "")
        return
    _print(rows, f"{units.format_bytes(size_bytes)} on {units.counted(cluster.workers, 'device')} of {cluster.name}")


def _beginnings(late: list[tuple[int, float]], devices: int) -> list[float]:
    begin_s = [0.0] * devices
    for number, seconds in late:
        if number >= devices:
            raise InputError(f"--late {number}: devices have the numbers 0 to {devices - 1}")
        begin_s[number] = seconds
    return begin_s


def _print(rows: list[AllReduceByMessage], title: str) -> None:
    say(title)
    table = _tables.new_table("collective", "last begins", "first ends", "last ends", "in lockstep")
    for row in rows:
        moments = (row.begin_s.max(), row.end_s.min(), row.end_s.max(), row.lockstep_s)
        table.add_row(row.collective, *(units.format_time(float(moment)) for moment in moments))
    _tables.print_table(table)
