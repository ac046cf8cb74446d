"""List the profiles that come with Shardscope."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This command takes no arguments."""


def run(args: argparse.Namespace) -> int:
    from simulator import files
    from simulator.cli import _printing

    _printing.print_profiles({name: files.read_profile(name) for name in files.library()})
    return 0
