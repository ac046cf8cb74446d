"""Execute a plan with one process per device on this machine and compare it with the simulation (needs torch).

Shardscope's own executor runs any plan; data parallelism and pipelines also run as users run them (--via).
In the network lab (the default where there is root and iproute2) the links have the rates of the cluster; over
loopback they have none. The profile should be one captured on this machine, the cluster one that `shardscope calibrate`
measured: a prediction is as good as its inputs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator import files
from simulator.cli import _options, _plan_files, _printing, _tables
from simulator.cli._captured_input import reference
from simulator.errors import InputError, needing
from simulator.one_line_parser import count, option, positive, shape
from simulator.terminal import say
from simulator.units import format_longer, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.cli._tables import TextTable
    from simulator.taskgraph import TaskGraph
    from traces.results.executions import Execution
    from traces.results.timeline_comparison import Comparison, Difference

_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "plan PLAN", "a plan file that `partition` or `--plan-out` wrote")
    option(parser, "--profile PROFILE", "profile file or name (default: the plan's)")
    machine = parser.add_argument_group("machine")
    _options.add_cluster(machine, "--cluster", required=True)
    _options.add_overrides(machine)
    text = "what joins the processes (default: lab where it can be made)"
    option(machine, "--network", text, choices=("lab", "loopback"))
    text = "what runs it: our executor (default), DistributedDataParallel or torch.distributed.pipelining"
    option(parser, "--via", text, choices=("execute", "ddp", "pipelining"), default="execute")
    option(parser, "--model NAME", "of the zoo, or package.module:callable (default: the plan's)")
    option(parser, "--input-shape AxBxC", "of one sample (default: as captured)", shape)
    option(parser, "--vocabulary N", "the input is integers below this", count)
    option(parser, "--steps N", "measured steps (default 10)", count, default=10)
    option(parser, "--timeout S", "seconds (default 600)", positive, default=600.0)
    option(parser, "--output FILE", "write the timeline of the median step (.npz)")
    option(parser, "--trace-out FILE", "write it as a trace that ui.perfetto.dev opens (JSON)")
    option(parser, "--json", "print both steps and the critical path as JSON instead")


def run(args: argparse.Namespace) -> None:
    with needing("torch", "execute"):
        from traces.capture.recorded_steps import RECORDED
        from traces.lab import namespaces, shaped_network
        from traces.results import executions
        from traces.runs.executor import execute
        from traces.runs.torch_runtimes import ddp, pipelining
    from simulator.run import expected_step_s
    from simulator.run import run as simulate
    from traces.results.timeline_comparison import compare
    from traces.results.validation_cases import with_habits_of

    plan = files.read_plan(args.plan)
    named = _plan_files.profile_named(plan, args.profile)
    profile = files.read_profile(named)
    model = reference(profile, args.model, args.input_shape, args.vocabulary)
    if RECORDED in profile.notes:
        raise InputError(
            f"profile {named}: its layers were recorded while the network ran, not traced by "
            "torch.fx, and only traced layers can be run one by one; `shardscope export` runs the network whole"
        )
    cluster = _options.read_cluster(args, plan.synchronisation.collective)
    runtime = with_habits_of(args.via, _options.read_runtime(args, profile))
    done = simulate(profile, cluster, plan, runtime=runtime)
    reason = namespaces.available()
    loopback = args.network == "loopback" or (args.network is None and reason is not None)
    if loopback:
        note = f"note: over loopback, whose links are not those of {cluster.name}" + (f" ({reason})" if reason else "")
        say(note, stream=sys.stderr if args.json else sys.stdout)
    with nullcontext() if loopback else shaped_network.Lab(cluster) as lab:
        options = {"model": model, "steps": args.steps, "lab": lab, "timeout_s": args.timeout}
        if args.via == "ddp":
            execution = ddp.run_ddp(profile, cluster, plan, **options).execution
        elif args.via == "pipelining":
            execution = pipelining.run_pipeline(profile, cluster, plan, **options).execution
        else:
            execution = execute.execute(profile, cluster, plan, runtime=runtime, **options)
    if args.output:
        executions.write_execution(execution, args.output)
    if args.trace_out:
        _printing.write_trace(replace(done, timeline=execution.timeline), cluster, args.trace_out)
    expected_s = expected_step_s(profile, cluster, plan, runtime=runtime) or done.report.step_s
    comparison = compare(done.graph, done.timeline, execution.timeline)
    (_print_json if args.json else _print)(execution, comparison, expected_s)


def _print(execution: Execution, comparison: Comparison, expected_s: float) -> None:
    """Predicted and actual step, what its critical path consisted of, and the tasks that were most wrong.

    expected_s: the predicted step of devices that vary.
    """
    low, high = (format_time(f(execution.steps_s)) for f in (min, max))
    step_s, count = statistics.median(execution.steps_s), len(execution.steps_s)
    predicted, varied = format_time(comparison.predicted.step_s), format_time(expected_s)
    predicted += f", {varied} as devices vary" if varied != predicted else ""
    say(f"step {format_time(step_s)}, the median of {count} ({low} to {high}); predicted {predicted}")
    say(f"error of the prediction {expected_s / step_s - 1:+.1%}")
    table = _tables.new_table("on the critical path", "tasks", "predicted", "actual", "longer")
    for kind, total in comparison.totals(comparison.path).items():
        longer = total.actual_s - total.predicted_s
        times = (format_time(total.predicted_s), format_time(total.actual_s), format_longer(longer))
        table.add_row(kind.name.lower(), str(total.tasks), *times)
    table.add_row("waits between them", "", "", format_time(comparison.waits_s), "")
    print()
    _tables.print_table(table)
    for title, worst in (("longest over prediction", comparison.longest), ("latest of their own", comparison.latest)):
        print()
        _tables.print_table(_worst(title, comparison.graph, worst(_SHOWN)))


def _print_json(execution: Execution, comparison: Comparison, expected_s: float) -> None:
    """The steps, and the predicted and actual seconds of each kind of task on the critical path."""
    path = {
        kind.name.lower(): {"tasks": total.tasks, "predicted_s": total.predicted_s, "actual_s": total.actual_s}
        for kind, total in comparison.totals(comparison.path).items()
    }
    step_s = statistics.median(execution.steps_s)
    _printing.print_json(
        {
            "steps_s": execution.steps_s,
            "actual_s": step_s,
            "predicted_s": comparison.predicted.step_s,
            "expected_s": expected_s,
            "error_ratio": expected_s / step_s - 1,
            "critical_path": path,
            "waits_s": comparison.waits_s,
        }
    )


def _worst(title: str, graph: TaskGraph, differences: Sequence[Difference]) -> TextTable:
    table = _tables.new_table(title, "predicted", "actual", "late", last="after")
    for difference in differences:
        cause = graph.describe(difference.cause) if difference.cause >= 0 else "the start"
        times = map(format_time, (difference.predicted_s, difference.actual_s))
        table.add_row(graph.describe(difference.task), *times, format_longer(difference.late_s), cause)
    return table
