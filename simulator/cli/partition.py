"""Partition a network with one strategy and write the plan.

The plan can be simulated (simulate --plan), explained (explain), edited by hand or executed.
"""

from __future__ import annotations

import argparse

from simulator import files
from simulator.cli import _effects, _options, _plan_files, _printing, _strategy
from simulator.one_line_parser import count, option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser)
    option(parser, "--strategy NAME", "partitioning strategy: data, pipeline, hypergraph, ...", required=True)
    option(parser, "--microbatches M", "micro-batches per batch", count)
    _options.add_work(parser)
    option(parser, "--output FILE", "the plan (JSON); - is standard output", required=True)
    option(parser, "--hgr FILE", "also write the plan's shards as a hypergraph (hMETIS)")
    option(parser, "--json", "print the report as JSON instead")
    _strategy.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    import partitioners
    from simulator.cli.explain import print_partition
    from simulator.run import run as simulate

    _effects.check_step(args)
    profile = _options.read_profile(args)
    cluster = _options.read_cluster(args, args.sync)
    options = {"microbatches": args.microbatches, "schedule": args.schedule, **_strategy.read(args, args.strategy)}
    with _printing.progress() as progress:
        options |= partitioners.applicable(args.strategy, progress=progress)
        plan = _options.make_plan(args.strategy, profile, cluster, args, **options)
    _effects.check_schedule(args, profile, plan)
    done = simulate(profile, cluster, plan, runtime=_options.read_runtime(args, profile))
    _plan_files.write_plan(plan, args.output, args)
    if args.hgr:
        from partitioners._hypergraphs.hmetis import to_hgr
        from partitioners._hypergraphs.hypergraph import build, exact_grid

        files.write_text_atomic(args.hgr, to_hgr(build(profile, exact_grid(plan, profile))))
    if args.json:
        _printing.print_json(
            {"report": done.report.to_dict(), "plan": args.output}, *_effects.notes(args, [done.report], cluster)
        )
    else:
        print_partition(profile, done, args.output, _effects.notes(args, [done.report], cluster))
