"""List the profiles that come with Shardscope."""

from __future__ import annotations

import argparse

from simulator.one_line_parser import option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--json", "print them as JSON instead")


def run(args: argparse.Namespace) -> None:
    from simulator import files
    from simulator.cli import _listings, _printing

    profiles = {name: files.read_profile(name) for name in files.library()}
    if args.json:
        fields = ("model", "device", "batch_size", "dtype", "parameter_bytes", "step_s", "layers_to_step", "date")
        rows = [
            {"name": name, "layers": len(profile.layers)} | {field: getattr(profile, field) for field in fields}
            for name, profile in profiles.items()
        ]
        _printing.print_json({"profiles": rows})
    else:
        _listings.print_profiles(profiles)
