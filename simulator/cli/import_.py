"""Turn a profile of another project into one of Shardscope: PipeDream's graph.txt."""

from __future__ import annotations

import argparse

from simulator.cli import _options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="PipeDream graph.txt")
    parser.add_argument(
        "--batch-size", metavar="B", type=_options.count, required=True, help="mini-batch it was measured at"
    )
    parser.add_argument("--output", metavar="FILE", required=True, help="profile to write (JSON)")


def run(args: argparse.Namespace) -> int:
    from simulator import files
    from traces.imports.pipedream import read_pipedream

    profile = read_pipedream(args.file, batch_size=args.batch_size)
    files.write_profile(profile, args.output)
    print(f"{args.output}: {len(profile.layers)} layers of {profile.model}")
    return 0
