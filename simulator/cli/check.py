"""Check a run: is it as fast as it should be, and if not, why? Or a prediction against a recorded step.

    shardscope check train.log --launch "torchrun ... pretrain_gpt.py ..." --cluster dgx-h100
    shardscope check --tokens-per-s 1000 --config train.toml --cluster dgx-h100 --devices 64
    shardscope check rank0.json.gz plan.json
    shardscope check train.log plan.json
    shardscope check traces/

With the command line or the configuration that a run was started with, its log (Megatron-LM, torchtitan, nanotron,
NeMo, DeepSpeed, Hugging Face Trainer, or a CSV), or a number, gets a verdict and the cause that would explain it.
A folder of traces of torch.profiler, one per rank of one step, is put on one clock: who is late, who waits for whom.

A trace of one rank is compared with the plan's step by cause: forward, backward, update, communication that nothing
hides, waiting. Times alone ("412 ms 405 ms", or a log of Megatron-LM or of an exported script) are compared as a whole,
and for each cause it says how many times longer it alone would have to be. Profile and cluster are those of the command
that made the plan, as the plan file records it, where this command line names no --profile, or --cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cli import _effects, _options, _plan_files, _printing, _run_verdict, _started_run, _tables
from simulator.errors import InputError
from simulator.one_line_parser import option, whole
from simulator.terminal import say
from simulator.units import format_longer, format_time

if TYPE_CHECKING:
    from simulator.report.interval import StepInterval
    from simulator.run import Run
    from traces.imports._aligned_ranks import AlignedRanks
    from traces.imports._recorded_phases import RecordedPhases


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a trace of torch.profiler, a folder of them, one per rank, a log, or a file of step times"
    option(parser, "recorded LOG_OR_TRACE", text, nargs="?")
    option(parser, "plan PLAN", "a plan file that `partition` or `--plan-out` wrote", nargs="?")
    _started_run.add_arguments(parser)
    _started_run.add_details(parser)
    _started_run.numbers(parser)
    text = "the device that was recorded (default: the trace's rank; of a log the one that computes most)"
    option(parser, "--device N", text, whole)
    option(parser, "--json", "print the comparison as JSON instead")
    _options.add_inputs(parser, required=False)


def run(args: argparse.Namespace) -> None:
    if _started_run.is_asked(args):
        if args.plan:
            raise InputError(f"plan {args.plan}: --launch, --config or --model say what ran; leave one of them out")
        _run_verdict.run(args)
        return
    if args.recorded and not args.plan and Path(args.recorded).is_dir():
        _check_ranks(args)
        return
    if not (args.recorded and args.plan):
        raise InputError("say what ran: a trace or log and a plan, or --launch, --config or --model")
    from simulator.report.step_causes import step_causes
    from simulator.run import expected_interval
    from traces.imports._recorded_phases import read_phases

    recorded = read_phases(Path(args.recorded))
    profile, cluster, done = _plan_files.simulated(args, ("device",))
    device = _device(args.device, recorded, done)
    predicted = step_causes(done.graph, done.timeline, device, done.report.devices[device])
    interval = expected_interval(done.report, profile, cluster, done.plan, done.runtime)
    if args.json:
        _printing.print_json(
            {
                "device": device,
                "recorded_steps_s": recorded.steps_s,
                "recorded_s": recorded.step_s,
                "predicted_s": done.report.step_s,
                "expected_s": interval.middle_s,
                "peak_memory_bytes": done.report.peak_memory_bytes,
                "fit": done.report.fit,
                "recorded_causes_s": recorded.causes_s,
                "predicted_causes_s": predicted,
                "interval": asdict(interval),
            },
            *_printing.machine_notes(profile, cluster, args.strict),
        )
    else:
        _print(recorded, predicted, done, device, interval)


def _device(rank: int | None, recorded: RecordedPhases, done: Run) -> int:
    """The device whose step is compared. Raises InputError where the plan does not use it."""
    used = done.plan.devices
    if rank is None and recorded.rank is None:
        return max(used, key=lambda number: done.report.devices[number].compute_s)
    device, whose = (rank, "--device") if rank is not None else (recorded.rank, "rank of the trace")
    if device not in used:
        raise InputError(f"{whose} is {device}: the plan computes on devices {used[0]} to {used[-1]}; say --device")
    return int(device)


def _print(
    recorded: RecordedPhases, predicted: Mapping[str, float], done: Run, device: int, interval: StepInterval
) -> None:
    from simulator.report.step_causes import beside, farthest_off

    say(*beside(recorded.steps_s, interval))
    name = f"device {device} {done.report.devices[device].name}"
    print()
    _tables.print_table(_by_cause(name, recorded, predicted, recorded.step_s - done.report.step_s))
    if recorded.causes_s:
        print()
        say(*farthest_off(recorded.causes_s, predicted))


def _by_cause(
    name: str, recorded: RecordedPhases, predicted: Mapping[str, float], longer_s: float
) -> _tables.TextTable:
    """A row per cause: beside a trace what it recorded, beside times alone how much longer it would have to be."""
    from simulator.report.step_causes import alone

    if recorded.causes_s:
        table = _tables.new_table(name, "predicted", "recorded", "longer", "error")
        for cause, seconds in predicted.items():
            actual = recorded.causes_s[cause]
            error = f"{seconds / actual - 1:+.1%}" if actual else "-"
            table.add_row(cause, format_time(seconds), format_time(actual), format_longer(actual - seconds), error)
        return table
    table = _tables.new_table(name, "predicted", "share", "alone it would be")
    total = sum(predicted.values())
    for cause, words in alone(predicted, longer_s).items():
        table.add_row(cause, format_time(predicted[cause]), f"{predicted[cause] / total:.1%}", words)
    return table


def _check_ranks(args: argparse.Namespace) -> None:
    """What a folder of traces, one per rank, says of a step: who is late, what is waiting, what would shorten it."""
    from traces.imports._aligned_ranks import align_ranks
    from traces.imports._ranks import read_ranks

    _effects.refuse(_effects.typed(args) - {"json"}, "has no effect on a folder of traces; leave it out")
    with _printing.progress() as progress:
        aligned = align_ranks(read_ranks(Path(args.recorded), progress))
    if args.json:
        _printing.print_json(_plain(aligned))
    else:
        _print_ranks(aligned)


def _plain(aligned: AlignedRanks) -> dict[str, object]:
    from traces.imports._aligned_ranks import changes

    ranks = [
        {
            "rank": rank,
            "compute_s": aligned.of_rank_s(rank, gaps=False),
            "gap_s": aligned.of_rank_s(rank, gaps=True),
            "waited_s": aligned.waited_s[rank],
            "waited_for_s": aligned.waited_for_s[rank],
            "arrives_last": aligned.arrives_last[rank],
        }
        for rank in aligned.ranks
    ]
    return {
        "recorded_s": aligned.timeline.step_s,
        "replayed_s": aligned.replayed_s(),
        "collectives": len(aligned.meetings),
        "collectives_s": sum(each.seconds for each in aligned.meetings),
        "clock_error_s": aligned.clock_error_s,
        "ranks": ranks,
        "changes_s": changes(aligned),
    }


def _print_ranks(aligned: AlignedRanks) -> None:
    from traces.imports._aligned_ranks import answer, changed

    say(*answer(aligned))
    print()
    table = _tables.new_table("rank", "computes", "gaps", "waits", "arrives last", last="others wait for it")
    for rank in aligned.ranks:
        table.add_row(
            str(rank), *(format_time(aligned.of_rank_s(rank, gaps=gaps)) for gaps in (False, True)),
            format_time(aligned.waited_s[rank]), f"{aligned.arrives_last[rank]}x",
            format_time(aligned.waited_for_s[rank]),
        )  # fmt: skip
    _tables.print_table(table)
    say("gaps: nothing runs on the GPU, which waits for nobody but its host")
    say(*changed(aligned))
    say(
        f"replayed as recorded {format_time(aligned.replayed_s())}; on one clock collectives end within "
        f"{format_time(aligned.clock_error_s)} of each other",
    )
