"""Options that several commands share, and what they make: a profile, a cluster, a plan; or what a plan file says."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulator import files
from simulator.cli import _effects
from simulator.errors import InputError
from simulator.language_models.card_files import is_card
from simulator.network import catalogue
from simulator.one_line_parser import assignment, bandwidth, count, line_rate_share, option, positive, size, time, whole
from simulator.registry import entries

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.parameter_states import ParameterStates
    from simulator.plan import Plan, StepSettings
    from simulator.runtime import Runtime
    from simulator.workload import Profile


OF_CARD = ("sequence", "stack", "precision")
"""What a card's profile is made with."""


def add_inputs(
    parser: argparse.ArgumentParser, *, required: bool = True, started: bool = False
) -> argparse._ArgumentGroup:
    """The options that say what is trained on which machine; all of them optional unless `required`. Returns the group
    of those that count for model cards alone.

    started: a run that others started (`_started_run`) may stand in place of the profile.
    """
    from simulator.lowering.schedules import SCHEDULES

    text = "profile file, a name that `shardscope profiles` lists, or a model card that `shardscope model` lists"
    where: dict[str, Any] = {"nargs": "?"} if started else {}
    option(parser, "profile PROFILE" if required else "--profile PROFILE", text, **where)
    machine = parser.add_argument_group("machine")
    add_cluster(machine, "--cluster", required=required)
    add_overrides(machine)
    step = parser.add_argument_group("training step")
    text = "samples per step in all (default: the profile's for every worker, which is weak scaling)"
    option(step, "--batch-size B", text, count)
    schedules = ", ".join(SCHEDULES)
    option(step, "--schedule NAME", f"order of forward and backward passes: {schedules}")
    collectives = ", ".join(entries("simulator.collectives"))
    text = f"collective that sums gradients (default ring): {collectives}; ps adds a server if none is"
    option(step, "--sync NAME", text)
    add_gradients(step)
    add_states(step)
    option(machine, "--strict", "an error, not a note, where the profile was captured on another device")
    option(step, "--seed N", "seed of randomised strategies (default 0)", whole, default=0)
    cards = parser.add_argument_group("where PROFILE is a model card")
    option(cards, "--sequence S", "tokens of a sequence (default: the card's)", count)
    option(cards, "--stack S", "training stack (JSON), or a name (default: the nearest)")
    text = "of products: bf16, fp8 (one scale for a tensor), fp8-block or mxfp8 (default: the stack's)"
    option(cards, "--precision P", text)
    return cards


def add_output(parser: argparse._ActionsContainer, what: str) -> None:
    """How much is printed, and for whom."""
    shown = parser.add_mutually_exclusive_group()
    option(shown, "--verbose", "print everything that is known, not the answer alone")
    option(shown, "--json", f"print {what} as JSON instead")


def add_overrides(machine: argparse._ActionsContainer) -> None:
    """The options that change a cluster that was read."""
    kind = assignment("TIER=VALUE, e.g. inter=10Gbps", str, bandwidth)
    text = "line rate of every link of a tier, e.g. inter=10Gbps"
    option(machine, "--bandwidth TIER=VALUE", text, kind, repeatable=True)
    kind = assignment("TIER=VALUE, e.g. inter=5us", str, time)
    option(machine, "--latency TIER=VALUE", "latency of every link of a tier, e.g. inter=5us", kind, repeatable=True)
    kind = assignment("TIER=SHARE, e.g. inter=0.3", str, line_rate_share)
    text = "share of its line rate that a tier gives training, e.g. inter=0.3 (default: as measured)"
    option(machine, "--efficiency TIER=SHARE", text, kind, repeatable=True)
    text = "devices compute X times as fast as the one that was profiled (default 1)"
    option(machine, "--speed X", text, positive, default=1.0)
    option(machine, "--memory SIZE", "memory of every device, e.g. 96GiB (default: the cluster's)", size)


def add_gradients(step: argparse._ActionsContainer) -> None:
    """The options of gradient synchronisation and the optimizer, but for the collective."""
    from simulator.plan import OPTIMIZERS

    option(step, "--bucket SIZE", "bytes of gradients per bucket (default 25MiB)", size)
    text = "bytes of the first bucket (default: as the others; torch DDP's is 1MiB where its size is left out)"
    option(step, "--first-bucket SIZE", text, size)
    option(step, "--no-overlap", "synchronise only after the whole backward pass")
    option(step, "--half-precision", "send gradients in 16 bits")
    option(step, "--compression RATIO", "gradients are sent compressed to 1/RATIO of their bytes", positive)
    option(step, "--compression-cost TIME", "what compressing 1 GB of gradients takes a device, e.g. 5ms", time)
    text = "bytes of buffers that the first device sends all others as a step begins, as torch DDP does (default 0)"
    option(step, "--broadcast SIZE", text, size)
    option(step, "--optimizer", "decides the optimizer state in memory (default momentum)", choices=OPTIMIZERS)


def add_work(step: argparse._ActionsContainer) -> None:
    """The option of work that differs from sample to sample."""
    text = "relative standard deviation of the work of a sample, drawn with --seed (default: as the profile says)"
    option(step, "--work-deviation X", text, positive)


def add_states(step: argparse._ActionsContainer) -> None:
    """The options of what replicas share out of parameters, and of recomputation."""
    text = "replicas share out optimizer state (1), gradients too (2), parameters too (3, FSDP); default 0"
    option(step, "--zero STAGE", text, int, choices=(0, 1, 2, 3))
    text = "so many consecutive replicas share out states, as in hybrid FSDP (default: all)"
    option(step, "--shard-group N", text, count)
    option(step, "--gradient-dtype DTYPE", "precision of kept and summed gradients, e.g. float32", str)
    option(step, "--recompute SEGMENTS", "drop activations and compute them again: 'stages', or a number of segments")


def read_profile(args: argparse.Namespace) -> Profile:
    """The profile asked for, as `profile_on` reads it."""
    return profile_on(args.profile, args.cluster, **of_card(args))


def of_card(args: argparse.Namespace) -> dict[str, Any]:
    """What is asked for of OF_CARD."""
    return _given(**{name: getattr(args, name, None) for name in OF_CARD})


def profile_on(source: str, cluster: str | None, **of_card: Any) -> Profile:
    """The profile in `source`; of a model card, one modelled on the cluster's GPU, or an H100. Raises as readers do.

    of_card: of OF_CARD, what is not as usual.
    """
    if not is_card(source):
        profile = files.read_profile(source)
        _effects.refuse(of_card, "counts only where PROFILE is a model card; leave it out")
        return profile
    from simulator.language_models.modelled_profile import read_profile_or_card  # takes a while to load

    machine = catalogue.read_cluster(cluster) if cluster else None
    return read_profile_or_card(source, machine, **of_card)


def add_cluster(parser: argparse._ActionsContainer, name: str, **keywords: Any) -> None:
    """The options that `read_cluster` reads, the cluster itself under `name`."""
    option(parser, f"{name} CLUSTER", "cluster file, or a name that `shardscope clusters` lists", **keywords)
    text = "number of devices, filling nodes in order (default: the preset's, or all)"
    option(parser, "--devices N", text, count)
    option(parser, "--servers K", "parameter servers to add to a preset", count)


def read_cluster(args: argparse.Namespace, collective: str | None) -> Cluster:
    """The cluster asked for, with its overrides, and with a server where `collective` (None: ring) needs one.

    Raises InputError for servers that it does not use.
    """
    from simulator import collectives

    name = collective or "ring"
    needed = collectives.load(name).needs_server
    if args.servers and not needed:
        raise InputError(f"servers is {args.servers}: collective {name} uses none; leave --servers out or take ps")
    cluster = catalogue.read_cluster(args.cluster, devices=args.devices, servers=args.servers, needs_server=needed)
    for tier, value in args.bandwidth:
        cluster = cluster.with_tier(tier, bandwidth_bytes_per_s=value)
    for tier, value in args.latency:
        cluster = cluster.with_tier(tier, latency_s=value)
    for tier, value in args.efficiency:
        cluster = cluster.with_efficiency(tier, value, "as asked for")
    cluster = cluster if args.memory is None else cluster.with_memory(args.memory)
    return cluster if args.speed == 1 else cluster.with_speed(args.speed)


def read_runtime(args: argparse.Namespace, profile: Profile) -> Runtime:
    """The runtime that the cluster's file was measured with; for a preset that of a modelled profile's stack, else the
    ideal one."""
    from simulator.language_models.training_stack import runtime_of

    return runtime_of(profile, catalogue.read_runtime(args.cluster))


def make_plan(strategy: str, profile: Profile, cluster: Cluster, args: argparse.Namespace, **settings: Any) -> Plan:
    """The plan of `strategy`. settings: those of the step, such as microbatches, and options of the strategy."""
    import partitioners

    step, own = step_settings(profile, cluster, args, **settings)
    return partitioners.make_plan(strategy, profile, cluster, step, seed=args.seed, **own)


def step_settings(
    profile: Profile, cluster: Cluster, args: argparse.Namespace, **settings: Any
) -> tuple[StepSettings, dict[str, Any]]:
    """What the command line asks of a step, and those of `settings` that are options of a strategy."""
    from simulator.language_models.training_stack import optimizer_state_of
    from simulator.parameter_states import REPLICATED
    from simulator.plan import OPTIMIZERS, Synchronisation, split_settings

    return split_settings(
        {
            "batch_size": args.batch_size or profile.batch_for(cluster.workers),
            "synchronisation": synchronisation(args, Synchronisation()),
            "runtime": read_runtime(args, profile),
            "states": _states(args, REPLICATED),
            "work": _work(args, args.batch_size or profile.batch_for(cluster.workers), profile.work_deviation),
            "optimizer_state": OPTIMIZERS[args.optimizer] if args.optimizer else optimizer_state_of(profile),
            **_given(recompute=args.recompute, **settings),
        }
    )


def batch_note(profile: Profile, args: argparse.Namespace) -> str:
    """Behind the batch size: that every device has the profile's, where nobody asked for another."""
    return "" if args.batch_size else f" ({profile.batch_size} per device: weak scaling)"


def changed(plan: Plan, args: argparse.Namespace) -> Plan:
    """A plan from a file, changed as the command line says."""
    from simulator.plan import OPTIMIZERS

    changes = _given(
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
        **changes,
    )


def _work(args: argparse.Namespace, samples: int, deviation: float = 0.0) -> tuple[float, ...]:
    """The work of each of `samples`, drawn with the deviation asked for, else with that of the profile."""
    from simulator.sample_work import drawn_work

    return drawn_work(samples, getattr(args, "work_deviation", None) or deviation, args.seed)


def _states(args: argparse.Namespace, base: ParameterStates) -> ParameterStates:
    """`base` changed as the command line says."""
    return replace(base, **_given(stage=args.zero, group=args.shard_group, gradient_dtype=args.gradient_dtype))


def synchronisation(args: argparse.Namespace, base: Any) -> Any:
    """`base` (a Synchronisation) changed as the command line says."""
    changes = _given(
        collective=args.sync or None,
        bucket_bytes=args.bucket,
        first_bucket_bytes=args.first_bucket,
        overlap=False if args.no_overlap else None,
        half_precision=True if args.half_precision else None,
        compression_ratio=args.compression,
        compression_s_per_byte=None if args.compression_cost is None else args.compression_cost / 1e9,
        broadcast_bytes=args.broadcast,
    )
    return replace(base, **changes)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
