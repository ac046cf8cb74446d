"""List the cluster presets; with a name, show its devices, links and sources.

With --output the cluster is written as a YAML file, to be changed by hand and given back to --cluster.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable

from simulator import files
from simulator.cli import _options, _printing
from simulator.cli._tables import new_table, print_table
from simulator.cluster import Cluster, Link
from simulator.errors import InputError, require
from simulator.network import catalogue
from simulator.network.catalogue import Join, Preset
from simulator.one_line_parser import option
from simulator.terminal import say
from simulator.units import counted, format_bandwidth, format_bytes, format_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_cluster(parser, "cluster", nargs="?")
    option(parser, "--output FILE", "write the cluster (YAML); - is standard output")
    option(parser, "--json", "print the clusters, or the one, as JSON instead")


def run(args: argparse.Namespace) -> None:
    if args.cluster is None:
        if args.devices or args.servers:
            raise InputError(f"--devices and --servers: name the cluster that has them, e.g. {catalogue.presets()[0]}")
        require(not args.output, "output", args.output, f"name the cluster to write, e.g. {catalogue.presets()[0]}")
        presets = [catalogue.read_preset(name) for name in catalogue.presets()]
        if args.json:
            _printing.print_json({"clusters": [files.plain(preset) for preset in presets]})
        else:
            print_presets(presets)
        return
    cluster = catalogue.read_cluster(args.cluster, devices=args.devices, servers=args.servers or 0)
    if args.output:
        catalogue.write_cluster(cluster, args.output, catalogue.read_runtime(args.cluster))
    if args.json:
        _printing.print_json({"host_cores": cluster.host_cores, **files.plain(cluster)})
    elif args.output != "-":
        print_cluster(cluster)


def print_presets(presets: Iterable[Preset]) -> None:
    """The presets, one row each."""
    table = new_table("cluster", "default", "memory", "intra", "inter", "$/h", last="what")
    for preset in presets:
        node = preset.node
        table.add_row(
            preset.name,
            str(preset.default_devices),
            format_bytes(node.memory_bytes) if node.memory_bytes else "-",
            _speed(preset.intra) if preset.intra else "-",
            _speed(preset.inter),
            f"{node.dollars_per_hour:.2f}" if node.dollars_per_hour else "-",
            preset.title,
        )
    print_table(table, ("$/h", "default", "memory"))
    say(
        "default: devices without --devices; intra: per device, each way; inter: per node, each way: line rate and the "
        "share of it that was measured, which links give; $/h: per node",
    )


def print_cluster(cluster: Cluster) -> None:
    """One cluster: its devices, its links by tier, its sources."""
    kinds = Counter((device.kind or device.role, device.memory_bytes) for device in cluster.devices)
    say(f"{cluster.name}: {counted(cluster.workers, 'worker')}, {counted(len(cluster.servers), 'server')}")
    devices = new_table("devices", "number", "memory")
    for (kind, memory_bytes), number in kinds.items():
        devices.add_row(kind, str(number), format_bytes(memory_bytes) if memory_bytes else "-")
    tiers = new_table("tier", "links", "line rate", "measured (5-95 %)", "bandwidth", "latency")
    tally = Counter(_link_row(link) for link in cluster.links)
    for (tier, *cells), number in tally.items():
        tiers.add_row(tier, str(number), *cells)
    print_table(devices)
    print_table(tiers)
    for name, curves in cluster.collectives.items():
        say(f"{name.replace('_', '-')} as measured on {', '.join(map(str, curves))} devices")
    say(*cluster.sources)


def _link_row(link: Link) -> tuple[str, ...]:
    share = link.achieved
    return (
        link.tier,
        format_bandwidth(link.line_rate_bytes_per_s or link.bandwidth_bytes_per_s),
        f"{share.median:.0%} ({share.low:.0%}-{share.high:.0%})" if share else "-",
        format_bandwidth(link.bandwidth_bytes_per_s),
        format_time(link.latency_s),
    )


def _speed(join: Join) -> str:
    share = f" {join.achieved.median:.0%}" if join.achieved else ""
    return f"{format_bandwidth(join.wire('').bandwidth_bytes_per_s)}{share}"
