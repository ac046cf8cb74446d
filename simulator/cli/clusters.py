"""List the cluster presets; with a name, show its devices, links and sources.

With --output the cluster is written as a YAML file, to be changed by hand and given back to --cluster.
"""

from __future__ import annotations

import argparse

from simulator.cli import _options
from simulator.errors import InputError, require
from simulator.one_line_parser import option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_cluster(parser, "cluster", nargs="?")
    option(parser, "--output FILE", "write the cluster (YAML); - is standard output")
    option(parser, "--json", "print the clusters, or the one, as JSON instead")


def run(args: argparse.Namespace) -> None:
    from simulator import files
    from simulator.cli import _listings, _printing
    from simulator.network import catalogue

    if args.cluster is None:
        if args.devices or args.servers:
            raise InputError(f"--devices and --servers: name the cluster that has them, e.g. {catalogue.presets()[0]}")
        require(not args.output, "output", args.output, f"name the cluster to write, e.g. {catalogue.presets()[0]}")
        presets = [catalogue.read_preset(name) for name in catalogue.presets()]
        if args.json:
            _printing.print_json({"clusters": [files.plain(preset) for preset in presets]})
        else:
            _listings.print_presets(presets)
        return
    cluster = catalogue.read_cluster(args.cluster, devices=args.devices, servers=args.servers or 0)
    if args.output:
        catalogue.write_cluster(cluster, args.output, catalogue.read_runtime(args.cluster))
    if args.json:
        _printing.print_json(files.plain(cluster))
    elif args.output != "-":
        _listings.print_cluster(cluster)
