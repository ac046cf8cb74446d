"""Options that several commands share, and what they make: a profile, a cluster, a plan."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulator import units
from simulator.errors import InputError
from simulator.registry import entries

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.parameter_states import ParameterStates
    from simulator.plan import Plan
    from simulator.runtime import Runtime
    from simulator.workload import Profile


LAYERS_TO_STEP = (0.8, 1.25)
"""Layers over the measured step: outside, a profile is worth a note."""
MOST_OF_LINE_RATE = 0.9
"""Above it a measured share of the line rate is not worth a note."""


def count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number of at least 1")
    return int(text)


def whole(text: str) -> int:
    """A whole number of at least 0, for argparse."""
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def shape(text: str) -> tuple[int, ...]:
    """The shape of one sample, AxBxC, for argparse."""
    sides = text.split("x")
    if not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write positive sides joined by x, e.g. 3x224x224")
    return tuple(map(int, sides))


def positive(text: str) -> float:
    """A finite number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def assignment(text: str) -> tuple[str, str]:
    """NAME=VALUE, for argparse."""
    tier, sign, value = text.partition("=")
    if not (tier and sign and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, e.g. inter=10Gbps")
    return tier, value


def add_inputs(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The options that say what is trained on which machine; all of them optional unless `required`."""
    from simulator.lowering.schedules import SCHEDULES

    text = "profile file, a name that `shardscope profiles` lists, or a model card that `shardscope model` lists"
    parser.add_argument("profile" if required else "--profile", metavar="PROFILE", help=text)
    machine = parser.add_argument_group("machine")
    add_cluster(machine, "--cluster", required=required)
    add_overrides(machine)
    step = parser.add_argument_group("training step")
    step.add_argument(
        "--batch-size",
        metavar="B",
        type=count,
        help="samples per step in all (default: the profile's for every worker, which is weak scaling)",
    )
    schedules = ", ".join(SCHEDULES)
    step.add_argument("--schedule", metavar="NAME", help=f"order of forward and backward passes: {schedules}")
    collectives = ", ".join(entries("simulator.collectives"))
    text = f"collective that sums gradients (default ring): {collectives}; ps adds a server if none is"
    step.add_argument("--sync", metavar="NAME", help=text)
    add_gradients(step)
    add_states(step)
    machine.add_argument(
        "--strict", action="store_true", help="an error, not a note, where the profile was captured on another device"
    )
    step.add_argument("--seed", metavar="N", type=whole, default=0, help="seed of randomised strategies (default 0)")


def add_overrides(machine: argparse._ActionsContainer) -> None:
    """The options that change a cluster that was read."""
    machine.add_argument(
        "--bandwidth", metavar="TIER=VALUE", type=assignment, action="append", default=[],
        help="bandwidth of every link of a tier, e.g. inter=10Gbps; repeatable",
    )  # fmt: skip
    machine.add_argument(
        "--latency", metavar="TIER=VALUE", type=assignment, action="append", default=[],
        help="latency of every link of a tier, e.g. inter=5us; repeatable",
    )  # fmt: skip
    machine.add_argument(
        "--efficiency", metavar="TIER=SHARE", type=assignment, action="append", default=[],
        help="share of its line rate that a tier gives training, e.g. inter=0.3 (default: as measured); repeatable",
    )  # fmt: skip
    machine.add_argument(
        "--speed", metavar="X", type=positive, default=1.0,
        help="devices compute X times as fast as the one that was profiled (default 1)",
    )  # fmt: skip


def add_gradients(step: argparse._ActionsContainer) -> None:
    """The options of gradient synchronisation and the optimizer, but for the collective."""
    from simulator.plan import OPTIMIZERS

    step.add_argument("--bucket", metavar="SIZE", help="bytes of gradients per bucket (default 25MiB)")
    text = "bytes of the first bucket (default: as the others; torch DDP's is 1MiB where its size is left out)"
    step.add_argument("--first-bucket", metavar="SIZE", help=text)
    step.add_argument("--no-overlap", action="store_true", help="synchronise only after the whole backward pass")
    step.add_argument("--half-precision", action="store_true", help="send gradients in 16 bits")
    step.add_argument(
        "--compression", metavar="RATIO", type=positive, help="gradients are sent compressed to 1/RATIO of their bytes"
    )
    step.add_argument(
        "--compression-cost", metavar="TIME", help="what compressing 1 GB of gradients takes a device, e.g. 5ms"
    )
    step.add_argument(
        "--optimizer", choices=OPTIMIZERS, help="decides the optimizer state in memory (default momentum)"
    )


def add_work(step: argparse._ActionsContainer) -> None:
    """The option of work that differs from sample to sample."""
    step.add_argument(
        "--work-deviation", metavar="X", type=positive,
        help="relative standard deviation of the work of a sample, drawn with --seed (default: as the profile says)",
    )  # fmt: skip


def add_states(step: argparse._ActionsContainer) -> None:
    """The options of what replicas share out of parameters, and of recomputation."""
    step.add_argument(
        "--zero", metavar="STAGE", type=int, choices=(0, 1, 2, 3),
        help="replicas share out optimizer state (1), gradients too (2), parameters too (3, FSDP); default 0",
    )  # fmt: skip
    text = "so many consecutive replicas share out states, as in hybrid FSDP (default: all)"
    step.add_argument("--shard-group", metavar="N", type=count, help=text)
    step.add_argument("--gradient-dtype", metavar="DTYPE", help="precision of kept and summed gradients, e.g. float32")
    text = "drop activations and compute them again: 'stages', or a number of segments"
    step.add_argument("--recompute", metavar="SEGMENTS", help=text)


def read_profile(args: argparse.Namespace) -> Profile:
    """The profile asked for; of a model card, a modelled one. Raises as the readers do."""
    from simulator import files
    from simulator.transformers.model_card import is_card

    if not is_card(args.profile):
        return files.read_profile(args.profile)
    from simulator.transformers.modelled_profile import read_profile_or_card  # takes a while to load

    return read_profile_or_card(args.profile)


def add_cluster(parser: argparse._ActionsContainer, name: str, **keywords: Any) -> None:
    """The options that `read_cluster` reads, the cluster itself under `name`."""
    parser.add_argument(
        name, metavar="CLUSTER", help="cluster file, or a name that `shardscope clusters` lists", **keywords
    )
    parser.add_argument(
        "--devices",
        metavar="N",
        type=count,
        help="number of devices, filling nodes in order (default: the preset's, or all)",
    )
    parser.add_argument("--servers", metavar="K", type=count, help="parameter servers to add to a preset")


def read_cluster(args: argparse.Namespace, collective: str | None) -> Cluster:
    """The cluster asked for, with its overrides, and with a server where `collective` (None: ring) needs one.

    Raises InputError for servers that it does not use.
    """
    from simulator import collectives
    from simulator.network import catalogue

    name = collective or "ring"
    needed = collectives.load(name).needs_server
    if args.servers and not needed:
        raise InputError(f"servers is {args.servers}: collective {name} uses none; leave --servers out or take ps")
    cluster = catalogue.read_cluster(args.cluster, devices=args.devices, servers=args.servers, needs_server=needed)
    for tier, value in args.bandwidth:
        cluster = cluster.with_tier(tier, bandwidth_bytes_per_s=units.parse_bandwidth(value))
    for tier, value in args.latency:
        cluster = cluster.with_tier(tier, latency_s=units.parse_time(value))
    for tier, value in args.efficiency:
        cluster = cluster.with_efficiency(tier, _share(value), "as asked for")
    return cluster if args.speed == 1 else cluster.with_speed(args.speed)


def read_runtime(args: argparse.Namespace) -> Runtime:
    """The runtime that the cluster's file was measured with; the ideal one for a preset."""
    from simulator.network import catalogue

    return catalogue.read_runtime(args.cluster)


def make_plan(strategy: str, profile: Profile, cluster: Cluster, args: argparse.Namespace, **settings: Any) -> Plan:
    """The plan of `strategy`. settings: those of the step, such as microbatches, and options of the strategy."""
    import partitioners
    from simulator.parameter_states import REPLICATED
    from simulator.plan import OPTIMIZERS, Synchronisation, split_settings

    step, own = split_settings(
        {
            "batch_size": args.batch_size or profile.batch_for(cluster.workers),
            "synchronisation": synchronisation(args, Synchronisation()),
            "runtime": read_runtime(args),
            "states": _states(args, REPLICATED),
            "work": _work(args, args.batch_size or profile.batch_for(cluster.workers), profile.work_deviation),
            **_given(optimizer_state=OPTIMIZERS.get(args.optimizer), recompute=args.recompute, **settings),
        }
    )
    return partitioners.make_plan(strategy, profile, cluster, step, seed=args.seed, **own)


def batch_note(profile: Profile, args: argparse.Namespace) -> str:
    """Behind the batch size: that every device has the profile's, where nobody asked for another."""
    return "" if args.batch_size else f" ({profile.batch_size} per device: weak scaling)"


def changed(plan: Plan, args: argparse.Namespace) -> Plan:
    """A plan from a file, changed as the command line says."""
    from simulator.plan import OPTIMIZERS

    wanted = _given(
        batch_size=args.batch_size,
        microbatches=args.microbatches,
        schedule=args.schedule,
        optimizer_state=OPTIMIZERS.get(args.optimizer),
    )
    return replace(
        plan,
        synchronisation=synchronisation(args, plan.synchronisation),
        states=_states(args, plan.states),
        work=_work(args, args.batch_size or plan.batch_size) or plan.work,
        **wanted,
    )


def _work(args: argparse.Namespace, samples: int, deviation: float = 0.0) -> tuple[float, ...]:
    """The work of each of `samples`, drawn with the deviation asked for, else with that of the profile."""
    from simulator.sample_work import drawn_work

    return drawn_work(samples, getattr(args, "work_deviation", None) or deviation, args.seed)


def _states(args: argparse.Namespace, base: ParameterStates) -> ParameterStates:
    """`base` changed as the command line says. Raises InputError."""
    changes = _given(stage=args.zero, group=args.shard_group, gradient_dtype=args.gradient_dtype)
    if args.shard_group is not None and not changes.get("stage", base.stage):
        raise InputError("shard-group is given, but nothing is shared out: add --zero 1, 2 or 3")
    return replace(base, **changes)


def synchronisation(args: argparse.Namespace, base: Any) -> Any:
    """`base` (a Synchronisation) changed as the command line says."""
    changes: dict[str, Any] = {"collective": args.sync} if args.sync else {}
    if args.bucket is not None:
        changes["bucket_bytes"] = units.parse_bytes(args.bucket)
    if args.first_bucket is not None:
        changes["first_bucket_bytes"] = units.parse_bytes(args.first_bucket)
    if args.no_overlap:
        changes["overlap"] = False
    if args.half_precision:
        changes["half_precision"] = True
    if args.compression is not None:
        changes["compression_ratio"] = args.compression
    if args.compression_cost is not None:
        changes["compression_s_per_byte"] = units.parse_time(args.compression_cost) / 1e9
    return replace(base, **changes)


def machine_note(profile: Profile, cluster: Cluster, strict: bool = False) -> str:
    """What makes times look better or other than they will be; empty where nothing is known to.

    First of all that layers were modelled.

    strict: raise InputError where the devices are not the profiled one and nobody said how fast they are.
    """
    device_note = _device_note(profile, cluster)
    if strict and device_note and set(cluster.speeds[: cluster.workers]) == {1.0}:
        raise InputError(f"--strict: {device_note}")
    modelled = profile.notes if profile.notes.startswith("modelled") else ""
    return "; ".join(filter(None, [modelled, device_note, _layers_note(profile), _links_note(cluster)]))


def _layers_note(profile: Profile) -> str:
    """A sentence where the layers add up to something else than the measured step."""
    ratio = profile.layers_to_step
    if ratio is None or LAYERS_TO_STEP[0] <= ratio <= LAYERS_TO_STEP[1]:
        return ""
    return f"the profile's layers add up to {ratio:.2f} of its measured step, so times may be off by as much"


def _links_note(cluster: Cluster) -> str:
    """What share of their line rate the links between the first and the last worker give, where it was measured."""
    crossed = [cluster.links[number] for number in cluster.route(0, cluster.workers - 1)]
    shares = [
        f"{tier} {share.median:.0%} ({share.low:.0%} to {share.high:.0%})"
        for tier, share in dict.fromkeys((link.tier, link.achieved) for link in crossed)
        if share is not None and share.median != 1
    ]
    if not shares:
        return ""
    curves = ", ".join(name.replace("_", "-") for name in sorted(cluster.collectives))
    measured = f", {curves} as measured" if curves else ""
    return (
        f"links give the share of their line rate measured on such links: {', '.join(shares)}{measured}; "
        "--efficiency TIER=1 asks for the line rate"
    )


def _device_note(profile: Profile, cluster: Cluster) -> str:
    """A sentence when the cluster's devices are not the profiled one, otherwise nothing."""
    kinds = dict.fromkeys(device.kind for device in cluster.devices[: cluster.workers] if device.kind)
    other = [kind for kind in kinds if profile.device and not _models(kind) & _models(profile.device)]
    if not other:
        return ""
    scaled = set(cluster.speeds[: cluster.workers]) != {1.0}
    advice = "they are scaled by the cluster's speed" if scaled else "scale them with --speed"
    return f"compute times were captured on {profile.device}, not {', '.join(other)}; {advice}"


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(f"efficiency {text!r}: write a share of the line rate above 0 and up to 1, e.g. 0.3")
    return share


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _models(device: str) -> set[str]:
    """The words of a device's name that tell its model, e.g. {"v100"}; {..., "thread"} for one core of a CPU."""
    words = set(re.findall(r"[a-z0-9]+", device.lower()))
    return {word for word in words if not re.fullmatch(r"nvidia|tesla|gpu|rtx|pcie|sxm\d?|\d+gb|\d+", word)}
