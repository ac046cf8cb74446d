"""List the cluster presets; with a name, show its devices, links and sources.

With --output the cluster is written as a YAML file, to be changed by hand and given back to --cluster.
"""

from __future__ import annotations

import argparse

from simulator.cli import _options
from simulator.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_cluster(parser, "cluster", nargs="?")
    parser.add_argument("--output", metavar="FILE", help="write the cluster (YAML)")


def run(args: argparse.Namespace) -> int:
    from simulator.cli import _printing
    from simulator.network import catalogue

    if args.cluster is None:
        if args.output:
            raise InputError(f"output is {args.output}: name the cluster to write, e.g. {catalogue.presets()[0]}")
        _printing.print_presets([catalogue.read_preset(name) for name in catalogue.presets()])
        return 0
    cluster = catalogue.read_cluster(args.cluster, devices=args.devices, servers=args.servers or 0)
    if args.output:
        catalogue.write_cluster(cluster, args.output, catalogue.read_runtime(args.cluster))
    _printing.print_cluster(cluster)
    return 0
