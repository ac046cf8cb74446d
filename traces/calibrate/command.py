"""`shardscope calibrate CLUSTER -o OUT.yaml`: measure a Cluster and a Runtime, and write both into one file.

    sudo shardscope calibrate CLUSTER -o OUT.yaml                                            in a network lab
    torchrun --nnodes 2 ... --no-python shardscope calibrate CLUSTER -o OUT.yaml             on the hosts it runs on

Started by torchrun, rank r is device r of the cluster. With --plan (and --profile) messages and collectives are
measured up to the largest that the plan sends, with --up-to up to that many bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from simulator import files, units
from simulator.cluster import Cluster
from simulator.device_names import unlike
from simulator.errors import InputError, require
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.one_line_parser import OneLineParser, count, duration, positive
from simulator.plan import Plan
from simulator.workload import Profile
from traces.calibrate import links
from traces.calibrate.link_probe import measure
from traces.calibrate.median_calibration import STEADY, Calibration, median_calibration, sizes_to, unsteady
from traces.calibrate.runtime_overheads import ddp_overhead_s, pass_cost, pass_overhead_s
from traces.capture import machine_settings
from traces.capture.measurement_rounds import median
from traces.lab import namespaces
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.zoo.networks import load

PASS_NETWORK = "vgg_digits"
"""Small, so that what a pipeline adds to a pass stands out of its layers' own time."""
FEWEST_PASSES = 3
"""Two that agree may do so by chance."""
REST_S = 3.0
"""Between passes, so that a moment's disturbance meets one of them."""
COPIED_NETWORK = "vgg_small"
"""9 MB of parameters, so that what copies of gradients take stands out."""


def main(argv: Sequence[str], profile_of: Callable[[Plan, str | None], Profile]) -> int:
    """Measure and write; on other ranks than torchrun's first nothing is written.

    profile_of: a plan's profile, by the name that is asked for, if any.
    """
    parser = OneLineParser(prog="shardscope calibrate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("cluster", metavar="CLUSTER", help="cluster file, or a name that `shardscope clusters` lists")
    parser.add_argument("--devices", metavar="N", type=count, help="how many, filling nodes in order")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--plan", metavar="PLAN", help="measure up to the largest message and collective of this plan")
    sizes.add_argument("--up-to", metavar="BYTES", help="measure up to this size, e.g. 64MB (default 16.8 MB)")
    parser.add_argument("--profile", metavar="PROFILE", help="the plan's profile (default: what it was made of)")
    text = "measure again until passes agree within 10%%, for no longer than this (default 3min; at least one pass)"
    parser.add_argument("--budget", metavar="TIME", type=duration, default=180.0, help=text)
    parser.add_argument("--timeout", metavar="SECONDS", type=positive, default=600.0, help="at most (default 600)")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write the measured cluster")
    args = parser.parse_args(argv)
    if args.profile is not None and args.plan is None:
        raise InputError("--profile: counts only beside --plan; add it, or leave it out")
    files.check_writable(args.output, files.YAML)
    cluster = read_cluster(args.cluster, devices=args.devices)
    _check_place(cluster)
    task = links.probe_arguments(cluster, sizes_to(_largest_bytes(args, cluster, profile_of), links.SIZES_BYTES))
    passes = _passes(cluster, task, args)
    if _speaks():
        measured, runtime = median_calibration([calibration for calibration, _ in passes])
        known = len(cluster.sources)
        notes = [*passes[0][0][0].sources[known:], *_notes(passes)]
        write_cluster(replace(measured, sources=(*cluster.sources, *notes)), args.output, runtime)
        longer = f"a pass of torch's pipelines takes {runtime.pass_overhead_s * 1e3:.2f} ms more"
        print(f"{args.output}: {'; '.join([*notes, longer])}")
    return 0


def _speaks() -> bool:
    """Whether this process speaks for all that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _passes(cluster: Cluster, task: dict[str, Any], args: argparse.Namespace) -> list[tuple[Calibration, float]]:
    """Calibrations with what copies take, in seconds per byte: until they agree, or the budget does not hold another.

    All of torchrun's processes decide alike, as they know each other's measurements and how long these took.
    """
    passes: list[tuple[Calibration, float]] = []
    taken_s = 0.0
    while True:
        by_rank, where = _on_ranks(cluster, task, args.timeout)
        measured, runtime = links.apply(cluster, links.measurement_of_ranks(task, by_rank), where)
        costs = [each["pass_cost"] for each in by_rank[:2]]
        runtime = replace(runtime, pass_overhead_s=pass_overhead_s(costs, runtime.send_cpu_s_per_byte))
        passes.append(((measured, runtime), median([each["copies_s_per_byte"] for each in by_rank])))
        taken_s += max(each["taken_s"] for each in by_rank)
        off = unsteady([calibration for calibration, _ in passes])
        if taken_s * (1 + 1 / len(passes)) > args.budget or (len(passes) >= FEWEST_PASSES and not off):
            return passes
        if _speaks():
            differing = f": {', '.join(off)} differ by more than {STEADY:.0%}" if off else ""
            print(f"pass {len(passes)} took {taken_s / len(passes):.0f} s{differing}; measuring again", file=sys.stderr)
        time.sleep(REST_S)


def _notes(passes: Sequence[tuple[Calibration, float]]) -> Iterator[str]:
    """What was measured in the median, how far the passes lie apart, and what copies take."""
    calibrations = [calibration for calibration, _ in passes]
    _, runtime = median_calibration(calibrations)
    sent_s, received_s = runtime.send_cpu_s_per_byte, runtime.receive_cpu_s_per_byte
    yield (
        f"the median of {len(passes)} pass(es): core time per byte sent {sent_s * 1e9:.2f} ns, received "
        f"{received_s * 1e9:.2f} ns; a round beside compute waits {runtime.busy_latency_s * 1e3:.2f} ms"
    )
    if off := unsteady(calibrations):
        differ = ", ".join(f"{name} by {share:.0%}" for name, share in off.items())
        yield f"uncertain, as passes differ: {differ}; of links and collectives it is in every interval of a step"

    copied_ns = median([s_per_byte for _, s_per_byte in passes]) * 1e9
    yield (
        f"DistributedDataParallel copies gradients in {copied_ns:.2f} ns per byte unless "
        f"gradient_as_bucket_view is set: --compression 1 --compression-cost {copied_ns:.2g}s (a GB) predicts it"
    )


def largest_sent_bytes(profile: Profile, plan: Plan, cluster: Cluster) -> int:
    """The largest message or collective of a step."""
    model = ShardedModel(profile, plan)
    graph = lower(model, cluster)
    messages = [route >= 0 and len(graph.routes[route].pairs) == 1 for route in graph.route.tolist()]
    return round(max([*graph.bytes[messages], *(bucket.sent_bytes for bucket in model.buckets)], default=0.0))


def _largest_bytes(
    args: argparse.Namespace, cluster: Cluster, profile_of: Callable[[Plan, str | None], Profile]
) -> int:
    if args.up_to is not None:
        up_to = units.parse_bytes(args.up_to)
        shortest = min(links.SIZES_BYTES)
        require(up_to >= shortest, "--up-to", args.up_to, f"it is at least {shortest} bytes, the shortest message")
        return up_to
    if args.plan is None:
        return max(links.SIZES_BYTES)
    plan = files.read_plan(args.plan)
    return max(largest_sent_bytes(profile_of(plan, args.profile), plan, cluster), links.SIZES_BYTES[1])


def _check_place(cluster: Cluster) -> None:
    """Raise InputError where this machine is to stand for devices that it does not have."""
    here = machine_settings.device_name()
    if "TORCHELASTIC_RUN_ID" not in os.environ and (other := unlike(cluster, f"CPU {here}")):
        raise InputError(
            f"cluster is {cluster.name}: its devices are {', '.join(other)}, and what is measured here is {here}; "
            "start it with torchrun on the cluster's hosts, or take a cluster of CPUs"
        )


def _on_ranks(cluster: Cluster, task: dict[str, Any], timeout_s: float) -> tuple[list[Any], str]:
    """What each rank measured, and where: between torchrun's hosts, in a lab of the cluster, or over loopback."""
    hosts = "TORCHELASTIC_RUN_ID" in os.environ
    reason = None if hosts else namespaces.available()
    if reason:
        print(f"{reason}; measuring loopback without shaping instead", file=sys.stderr)
    with nullcontext() if hosts or reason else Lab(cluster) as lab:
        target, ranks = "traces.calibrate.command:measure_rank", len(cluster.devices)
        by_rank = launch(target, ranks, lab=lab, arguments={"task": task}, timeout_s=timeout_s)
    where = "over loopback, unshaped" if reason else "in a network lab of this machine"
    return by_rank, "between hosts" if hosts else where


def measure_rank(rank: Rank, task: dict[str, Any]) -> dict[str, Any]:
    """What each process measures: the links with the others, what a pass takes longer in a pipeline of the first two,
    then what DistributedDataParallel adds to a step by itself."""
    began_s = time.monotonic()
    measured = measure(rank, **task)
    pair = dist.new_group([0, 1])
    rank.doing("a pipeline of two stages")
    if rank.number < 2:
        measured["pass_cost"] = pass_cost(files.read_profile(PASS_NETWORK), rank.number, group=pair)
    dist.barrier()
    copies_s = ddp_overhead_s(rank, load(COPIED_NETWORK), 4, repeats=9)
    measured["copies_s_per_byte"] = copies_s / files.read_profile(COPIED_NETWORK).parameter_bytes
    measured["taken_s"] = time.monotonic() - began_s
    return measured
