"""Simulate one training step under one plan: time, communication, memory, bottleneck.

The plan comes from a strategy (--strategy) or from a file (--plan), in which case the other options of the
training step override what the file says. A run that others started says its plan itself (--launch, --config).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from simulator import files
from simulator.cli import _answers, _effects, _options, _plan_files, _printing, _started_run, _strategy
from simulator.errors import InputError, require
from simulator.one_line_parser import assignment, count, number, option, positive, whole
from simulator.terminal import say

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.engine.noise import Noise
    from simulator.plan import Plan
    from simulator.runtime import Runtime
    from simulator.workload import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser, started=True)
    _started_run.add_arguments(parser)
    plan = parser.add_argument_group("plan").add_mutually_exclusive_group()
    option(plan, "--strategy NAME", "partitioning strategy: data, model, pipeline, ...")
    option(plan, "--plan FILE", "a plan that --plan-out wrote")
    option(parser, "--microbatches M", "micro-batches per batch", count)
    noise = parser.add_argument_group("noise")
    _options.add_work(noise)
    text = "relative standard deviation of every compute task's duration, drawn with --seed"
    option(noise, "--jitter X", text, positive, default=0.0)
    kind = assignment("DEVICE=FACTOR, e.g. 3=2", whole, number)
    text = "tasks of a device take FACTOR times as long, e.g. 3=2"
    option(noise, "--straggler DEVICE=FACTOR", text, kind, repeatable=True)
    option(parser, "--plan-out FILE", "write the plan (JSON)")
    option(parser, "--trace-out FILE", "write a trace that ui.perfetto.dev opens (JSON)")
    _options.add_output(parser, "the report")
    _strategy.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    _effects.check_step(args)
    if args.plan:
        _effects.check_plan_file(args)
    if _started_run.is_asked(args):
        _of_started(args)
        return
    if not (args.plan or args.strategy):
        raise InputError("plan is not said: one of --strategy, --plan, --launch and --config is required")
    profile = _options.read_profile(args)
    plan_from_file = _options.changed(files.read_plan(args.plan), args) if args.plan else None
    cluster = _options.read_cluster(args, plan_from_file.synchronisation.collective if plan_from_file else args.sync)
    plan = plan_from_file or _made(args, profile, cluster)
    _effects.check_schedule(args, profile, plan)
    _print(args, profile, cluster, plan, _options.read_runtime(args, profile))


def _of_started(args: argparse.Namespace) -> None:
    """The step of a run that others started."""
    if args.plan or args.strategy:
        raise InputError("--launch and --config say the plan; leave --plan and --strategy out")
    _started_run.check_options(args)
    planned = _started_run.planned(args)
    unread = (f"not counted: {each}" for each in planned.started.unread)
    say(planned.started.described(), *unread, stream=sys.stderr)
    run = planned.simulated
    _print(args, run.profile, run.cluster, run.plan, run.runtime)


def _print(args: argparse.Namespace, profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime) -> None:
    """The step of a plan, its files and its report."""
    from simulator.report.interval import step_interval
    from simulator.run import expected_interval, step_report
    from simulator.run import run as simulate

    noise = _noise(args)
    done = simulate(profile, cluster, plan, runtime=runtime, noise=noise) if args.trace_out else None
    report = done.report if done else step_report(profile, cluster, plan, runtime=runtime, noise=noise)
    if args.plan_out:
        _plan_files.write_plan(plan, args.plan_out, args)
    if done:
        _printing.write_trace(done, cluster, args.trace_out)
    notes = [*_printing.machine_notes(profile, cluster, args.strict), *_effects.notes(args, [report], cluster)]
    is_noisy = bool(noise.jitter or noise.stragglers)
    interval = (
        step_interval(report, profile, cluster)
        if is_noisy
        else expected_interval(report, profile, cluster, plan, runtime)
    )
    if args.json:
        _printing.print_json({**report.to_dict(), "interval": asdict(interval)}, *notes)
    else:
        shown = _printing.Shown(
            of=_answers.priced(profile),
            change=_answers.best_change(profile, cluster, plan, runtime, report, noise if is_noisy else None),
            batch_note="" if args.plan or not args.strategy else _options.batch_note(profile, args),
            notes=notes,
            trace=args.trace_out,
            verbose=args.verbose,
        )
        _printing.print_report(report, plan.schedule, cluster, interval, shown)


def _noise(args: argparse.Namespace) -> Noise:
    from simulator.engine.noise import Noise

    for device, factor in args.straggler:
        rule = "it is at least 1; a faster device has its speed in the cluster's file"
        require(factor >= 1, f"straggler {device}", factor, rule)
    return Noise(jitter=args.jitter, stragglers=dict(args.straggler), seed=args.seed)


def _made(args: argparse.Namespace, profile: Profile, cluster: Cluster) -> Plan:
    import partitioners

    step = {"microbatches": args.microbatches, "schedule": args.schedule, **_strategy.read(args, args.strategy)}

    with _printing.progress() as progress:
        step |= partitioners.applicable(args.strategy, progress=progress)
        return _options.make_plan(args.strategy, profile, cluster, args, **step)
