"""Partition a network with one strategy and write the plan.

The plan can be simulated (simulate --plan), explained (explain), edited by hand or executed.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace

from simulator.cli import _options, _strategy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser)
    parser.add_argument(
        "--strategy", metavar="NAME", required=True, help="partitioning strategy: data, pipeline, hypergraph, ..."
    )
    parser.add_argument("--microbatches", metavar="M", type=_options.count, help="micro-batches per batch")
    parser.add_argument("--output", metavar="FILE", required=True, help="the plan (JSON)")
    parser.add_argument("--hgr", metavar="FILE", help="also write the plan's shards as a hypergraph (hMETIS)")
    _strategy.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import partitioners
    from simulator import files
    from simulator.cli import _explaining
    from simulator.run import run as simulate

    profile = files.read_profile(args.profile)
    cluster = _options.read_cluster(args, args.sync)
    options = {"microbatches": args.microbatches, "schedule": args.schedule, **_strategy.read(args, args.strategy)}
    with _explaining.progress() as progress:
        options |= partitioners.applicable(args.strategy, progress=progress)
        plan = _options.make_plan(args.strategy, profile, cluster, args, **options)
    done = simulate(profile, cluster, plan, runtime=_options.read_runtime(args))
    files.write_plan(replace(plan, command=shlex.join(["shardscope", *args.argv])), args.output)
    if args.hgr:
        from partitioners._hmetis import to_hgr
        from partitioners._hypergraph import build, exact_grid

        files.write_text_atomic(args.hgr, to_hgr(build(profile, exact_grid(plan, profile))))
    _explaining.print_partition(profile, done, args.output)
    return 0
