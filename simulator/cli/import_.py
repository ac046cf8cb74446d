"""Convert what was measured elsewhere into a profile or a cluster's curves.

Read are torch.profiler's JSON (Kineto), PipeDream's graph.txt, logs of nccl-tests, and a table of your own: CSV with a
layer a row (docs/traces.md has its columns). Which it is, the file itself says.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from simulator import files
from simulator.cli import _effects, _printing
from simulator.errors import InputError
from simulator.network import catalogue
from simulator.one_line_parser import count, counts, option, shape
from simulator.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "files of one measurement: torch.profiler's JSON, graph.txt, logs of nccl-tests or tables of layers"
    option(parser, "files TRACE", text, nargs="+")
    option(parser, "--output FILE", "profile to write (JSON)")
    text = "a network of the zoo or package.module:callable, where a trace needs it; of logs of nccl-tests that do not "
    option(parser, "--model M", text + "say it the collective, e.g. all_gather (default all_reduce)")
    option(parser, "--batch-size B[,B]", "samples per step, where the files do not say it", counts, default=())
    option(parser, "--input-shape CxHxW", "one sample's shape, for package.module:callable", shape)
    option(parser, "--classes N", "num_classes for package.module:callable", count)
    option(parser, "--vocabulary N", "the input is integers below this", count)
    option(parser, "--dtype T", "precision, where the files do not say it (default float32)")
    option(parser, "--device NAME", "the device's name, where the files do not say it")
    option(parser, "--json", "print what was written as JSON instead")
    option(parser, "--force", "accept layers that do not add up to the step")
    curves = parser.add_argument_group("collectives, where the files hold some")
    option(curves, "--ranks N", "how many devices met, where a log of nccl-tests does not list them", count)
    option(curves, "--cluster C", "file or preset that gets their times as measured curves")
    option(curves, "--cluster-output FILE", "cluster to write (YAML)")


def run(args: argparse.Namespace) -> None:
    from traces.imports._imported import ImportOptions
    from traces.imports._registry import import_files, recognised

    if not (args.output or args.cluster_output):
        raise InputError(
            "output is missing: name the profile to write with --output, or --cluster and --cluster-output"
        )
    if bool(args.cluster) != bool(args.cluster_output):
        raise InputError(
            "cluster: --cluster names the cluster that gets the curves, --cluster-output the file to write"
        )
    of_all = {"output", "json", "cluster", "cluster_output"}
    read = recognised(Path(args.files[0])).OPTIONS
    _effects.refuse(_effects.typed(args) - {*of_all, *read}, f"does not count for {args.files[0]}; leave it out")
    options = ImportOptions(
        model=args.model or "",
        batch_sizes=args.batch_size,
        input_shape=args.input_shape,
        classes=args.classes,
        vocabulary=args.vocabulary,
        dtype=args.dtype,
        device=args.device or "",
        force=args.force,
        ranks=args.ranks,
        command="shardscope " + shlex.join(sys.argv[1:]) if sys.argv[1:2] == ["import"] else "",
    )
    imported, written = import_files(args.files, options), dict[str, str]()
    if args.output:
        if imported.profile is None:
            raise InputError(
                f"{args.files[0]}: it holds no layers; write its curves with --cluster and --cluster-output"
            )
        files.write_profile(imported.profile, args.output)
        written[args.output] = f"{len(imported.profile.layers)} layers of {imported.profile.model}"
    if args.cluster_output:
        if not imported.collectives:
            raise InputError(f"{args.files[0]}: it holds no collective at two sizes, so no curve")
        cluster, largest = catalogue.read_cluster(args.cluster), max(map(max, imported.collectives.values()))
        if cluster.workers < largest:  # of a preset more; curves of more devices than a file has would never count
            cluster = catalogue.read_cluster(args.cluster, devices=largest)
        cluster = replace(cluster, collectives={**cluster.collectives, **imported.collectives})
        catalogue.write_cluster(cluster, args.cluster_output, catalogue.read_runtime(args.cluster))
        written[args.cluster_output] = f"curves of {', '.join(sorted(imported.collectives))}"
    if args.json:
        _printing.print_json({"written": written, "remarks": imported.remarks})
    else:
        say("\n".join([*(f"{path}: {what}" for path, what in written.items()), *imported.remarks]))
