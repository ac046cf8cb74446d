"""A run that others started, as what we simulate: its options, its plan, and the options that give it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulator.cli import _effects, _options
from simulator.errors import InputError
from simulator.language_models.card_files import read_card
from simulator.network import catalogue
from simulator.one_line_parser import count, number, option, time

if TYPE_CHECKING:
    from simulator.cli._run_causes import SimulatedRun
    from simulator.cluster import Cluster
    from simulator.language_models.training_stack import TrainingStack
    from simulator.readers import StartedRun

OF_PLANS = (
    "batch_size", "microbatches", "schedule", "zero", "shard_group", "recompute", "bucket", "first_bucket", "sync",
    "optimizer", "set", "effort", "work_deviation", "servers", "no_overlap", "strategies", "precision",
)  # fmt: skip
"""Options of other commands that a run which was started has already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that was started, with the cluster it is simulated on and the stack whose seconds these are."""

    started: StartedRun
    cluster: Cluster
    stack: TrainingStack
    simulated: SimulatedRun

    own_software: bool
    """Whether the stack is of the run's runtime, on its kind of GPU."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a run that was started elsewhere")
    option(group, "--launch LINE", "its command line, or the script that holds it: Megatron-LM's, torchtitan's")
    text = "its configuration: Megatron-LM's or nanotron's YAML, torchtitan's TOML, DeepSpeed's JSON, accelerate's YAML"
    option(group, "--config FILE", text)


def add_details(parser: argparse.ArgumentParser) -> None:
    """What a command line may leave out."""
    group = parser.add_argument_group("what neither of these says")
    option(group, "--model CARD", "what it trains: a card's name, a card, or a model's config.json")
    option(group, "--microbatch N", "sequences of a micro-batch (default 1)", count)


def is_asked(args: argparse.Namespace) -> bool:
    """Whether the command line says how a run was started. Raises InputError where it says nothing at all."""
    if args.launch or args.config or getattr(args, "model", None):
        return True
    if getattr(args, "profile", "") is None and args.command in ("simulate", "compare"):
        raise InputError("PROFILE is missing: name what is trained, or how it was started (--launch, --config)")
    return False


def check_options(args: argparse.Namespace) -> None:
    """Raise InputError for options of a plan beside --launch or --config, which say the plan."""
    _effects.refuse(_effects.typed(args) & {*OF_PLANS}, "the run that was started says that; leave it out")


def planned(args: argparse.Namespace) -> PlannedRun:
    """The run of --launch, --config or --model on --cluster. Raises InputError, OSError."""
    if args.launch and args.config:
        raise InputError("launch and config are both there: one of them says how it was started")
    if not args.cluster:
        raise InputError("cluster is not said: on what did it run, e.g. --cluster dgx-h100?")
    return planned_run(_started(args), args)


def planned_run(started: StartedRun, args: argparse.Namespace) -> PlannedRun:
    """`started` on --cluster, with what the command line says instead of it. Raises InputError."""
    from partitioners._grids.grid_plan import grid_plan
    from simulator.cli._run_causes import SimulatedRun
    from simulator.language_models.device_model import CASTS
    from simulator.language_models.modelled_profile import modelled_profile
    from simulator.language_models.training_stack import accelerator_of, read_stack, stack_for, stack_of_runtime
    from simulator.runtime import IDEAL

    microbatch, sequence = getattr(args, "microbatch", None), getattr(args, "sequence", None)
    if sequence or microbatch:
        grid = replace(started.grid, microbatch=microbatch or started.grid.microbatch)
        started = replace(started, grid=grid, card=replace(started.card, sequence=sequence or started.card.sequence))
    args.devices = started.grid.devices
    cluster = _options.read_cluster(args, None)
    gpu = accelerator_of(cluster)
    shipped = stack_of_runtime("nemo" if started.overlaps else started.runtime, gpu)
    named = getattr(args, "stack", None) or shipped
    stack = stack_for(cluster, read_stack(named) if named else None)
    stack = stack.with_precision(started.precision if CASTS.get(started.precision) else None)
    stack = stack.with_attention(started.attention)
    if started.fused_experts:
        stack = replace(stack, device=replace(stack.device, fused_experts=True))
    stack = replace(stack, gradient_dtype=started.gradient_dtype or stack.gradient_dtype)
    measured = catalogue.read_runtime(args.cluster)
    stack = stack if measured == IDEAL else replace(stack, runtime=measured)
    profile = modelled_profile(started.card, stack, batch_size=4, stack_source=named or "")
    plan = grid_plan(started.grid, profile, cluster, stack)
    plan = replace(plan, synchronisation=replace(plan.synchronisation, overlap=started.overlaps_sums))
    gathers = stack.runtime.overlaps_gathers and started.overlaps_gathers
    runtime = replace(stack.runtime, overlaps_gathers=gathers)
    run = SimulatedRun(profile=profile, cluster=cluster, plan=plan, runtime=runtime)
    own = bool(shipped) and named == shipped and started.runtime != "fsdp2"  # there the network is one's own
    if shipped and own:
        own = read_stack(shipped).accelerator.partition("-")[0] == gpu.partition("-")[0]
    return PlannedRun(started=started, cluster=cluster, stack=stack, simulated=run, own_software=own)


def _started(args: argparse.Namespace) -> StartedRun:
    from simulator.language_models.training_grid import TrainingGrid
    from simulator.readers import StartedRun, read_configuration

    if args.launch or args.config:
        return read_configuration(args.launch, args.config, getattr(args, "model", None) or args.profile, args.devices)
    if not args.devices:
        raise InputError("devices is not given: say on how many it ran, or how it was started (--launch, --config)")
    grid = TrainingGrid(data=args.devices, zero_stage=3 if args.devices > 1 else 0)
    return StartedRun(
        runtime="fsdp2", card=read_card(args.model), grid=grid,
        unread=("how it is spread: ZeRO-3 with a sequence a micro-batch is taken, which --launch or --config say",),
    )  # fmt: skip


def numbers(parser: argparse.ArgumentParser) -> None:
    """What was measured, where there is no log."""
    measured = parser.add_argument_group("what was measured, in place of a log")
    option(measured, "--step-time TIME", "of a step, e.g. 4.2s", time)
    option(measured, "--tokens-per-s N", "tokens a second of one device, e.g. 7500", number)
    option(measured, "--tflops N", "of one device, as the program says it", number)
    option(measured, "--mfu SHARE", "as the program says it: 0.42 or 42", number)
