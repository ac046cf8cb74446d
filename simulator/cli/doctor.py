"""Take three short real steps, compare them with their predictions, and say what is off (needs torch).

One step alone, one data-parallel, one through a pipeline: of the profile's network, on the devices of the cluster, in a
network lab where there is root and iproute2, or between the hosts that torchrun started:

    torchrun --nnodes 2 ... --no-python shardscope doctor PROFILE CLUSTER

The exit code is 0 where all are predicted within 10 %, 1 where a prediction is not to be trusted here.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

from simulator import files
from simulator.cli import _printing, _tables, _torchrun
from simulator.cli._captured_input import reference
from simulator.device_names import alike, unlike
from simulator.errors import InputError, needing, require
from simulator.network.catalogue import read_cluster, read_runtime
from simulator.one_line_parser import option, positive
from simulator.terminal import say
from simulator.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traces.results.diagnosis import Checkup

MICROBATCHES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a profile captured on these hosts, of a network of the zoo or of a package.module:attribute"
    option(parser, "profile PROFILE", text)
    option(parser, "cluster CLUSTER", "a cluster file that `shardscope calibrate` wrote here")
    option(parser, "--network", "what joins the processes", choices=("lab", "loopback"))
    option(parser, "--timeout S", "seconds per run", positive, default=300.0)
    option(parser, "--json", "print steps and findings as JSON instead")


def run(args: argparse.Namespace) -> int:
    with needing("torch", "doctor"):
        from traces.capture import machine_settings
        from traces.lab import namespaces, shaped_network
        from traces.validation import doctor
    import partitioners
    from simulator.plan import StepSettings
    from traces.results.diagnosis import diagnose

    profile = files.read_profile(args.profile)
    cluster, runtime = read_cluster(args.cluster), read_runtime(args.cluster)
    here = machine_settings.device_name()
    rule = f"it was measured on {profile.device}, and steps are taken on {here}; capture one here"
    require(alike(profile.device, here), "PROFILE", args.profile, rule)
    if other := unlike(cluster, f"CPU {here}"):
        raise InputError(
            f"CLUSTER is {args.cluster}: its devices are {', '.join(other)}, and steps are taken on {here}; "
            "take one that `shardscope calibrate` wrote here"
        )
    hosts = "TORCHELASTIC_RUN_ID" in os.environ
    reason = None if hosts or args.network == "loopback" else namespaces.available()
    if reason or args.network == "loopback":
        note = f"note: over loopback, whose links are not those of {cluster.name}" + (f" ({reason})" if reason else "")
        say(note, stream=sys.stderr if args.json else sys.stdout)
    model = reference(profile)
    if why := doctor.why_alone(profile, model):
        say(f"note: only the step alone is taken: {why}", stream=sys.stderr)
    unshaped = hosts or reason is not None or args.network == "loopback"
    batch_size = profile.batch_size
    with nullcontext() if unshaped else shaped_network.Lab(cluster) as lab:
        alone = doctor.step_alone(profile, cluster, model, lab, args.timeout)
        others: tuple[Checkup, ...] = ()
        if not why:
            data = partitioners.make_plan("data", profile, cluster, StepSettings(batch_size=batch_size))
            stages = StepSettings(batch_size=batch_size, microbatches=min(MICROBATCHES, batch_size), schedule="gpipe")
            pipeline = partitioners.make_plan("pipeline", profile, cluster, stages, judged=False)  # on all devices
            others = (
                doctor.step_under("ddp", profile, cluster, runtime, data, model, lab, args.timeout),
                doctor.step_under("pipelining", profile, cluster, runtime, pipeline, model, lab, args.timeout),
            )
    if os.environ.get("RANK", "0") != "0":
        return 0
    checkups, findings = (alone, *others), diagnose(alone, others)
    if findings:
        _torchrun.end_report_with(f"predictions are not to be trusted here: {'; '.join(findings)}")
    if args.json:
        _printing.print_json({"steps": [asdict(each) for each in checkups], "findings": findings})
        return 1 if findings else 0
    return report(checkups, findings)


def report(checkups: Sequence[Checkup], findings: Sequence[str]) -> int:
    """Print runs and findings; the exit code."""
    table = _tables.new_table("step", "predicted", "actual", "spread", "error")
    for each in checkups:
        times = (format_time(seconds) for seconds in (each.predicted_s, each.actual_s, each.spread_s))
        table.add_row(each.name, *times, f"{each.error:+.1%}")
    _tables.print_table(table)
    say(*findings)
    if not findings:
        say("predictions can be trusted here: all steps came out within 10 %")
    return 1 if findings else 0
