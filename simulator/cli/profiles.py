"""List the profiles that come with Shardscope."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from simulator import files
from simulator.cli import _printing
from simulator.cli._tables import new_table, print_table
from simulator.one_line_parser import option
from simulator.units import format_bytes, format_time
from simulator.workload import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--json", "print them as JSON instead")


def run(args: argparse.Namespace) -> None:
    profiles = {name: files.read_profile(name) for name in files.library()}
    if args.json:
        fields = ("model", "device", "batch_size", "dtype", "parameter_bytes", "step_s", "layers_to_step", "date")
        rows = [
            {"name": name, "layers": len(profile.layers)} | {field: getattr(profile, field) for field in fields}
            for name, profile in profiles.items()
        ]
        _printing.print_json({"profiles": rows})
    else:
        print_profiles(profiles)


def print_profiles(profiles: Mapping[str, Profile]) -> None:
    """The library, one row per profile."""
    columns = ("batch", "layers", "parameters", "step", "layers / step", "date")
    table = new_table("profile", *columns, last="device")
    for name, profile in profiles.items():
        table.add_row(
            name,
            str(profile.batch_size),
            str(len(profile.layers)),
            format_bytes(profile.parameter_bytes),
            format_time(profile.step_s) if profile.step_s is not None else "-",
            f"{profile.layers_to_step:.3f}" if profile.layers_to_step is not None else "-",
            profile.date,
            profile.device,
        )
    print_table(table, ("date", "layers / step", "layers", "batch"))
