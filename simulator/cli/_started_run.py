"""A run that others started, as what we simulate: its options, its plan, and the options that give it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulator.cli import _options, _values
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.cli._run_causes import SimulatedRun
    from simulator.cluster import Cluster
    from simulator.language_models.training_stack import TrainingStack
    from simulator.readers import StartedRun

NAMES = ("launch", "config", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that was started, with the cluster it is simulated on and the stack whose seconds these are."""

    started: StartedRun
    cluster: Cluster
    stack: TrainingStack
    simulated: SimulatedRun

    @property
    def own_software(self) -> bool:
        """Whether the stack is of the run's runtime, on its GPU."""
        runtime, _, gpu = self.stack.name.partition("-")
        return self.started.runtime.startswith(runtime) and gpu == self.stack.accelerator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = parser.add_argument_group("a run that was started elsewhere")
    text = "its command line, or the script that holds it: Megatron-LM's, torchtitan's"
    given.add_argument("--launch", metavar="LINE", help=text)
    text = "its configuration: Megatron-LM's or nanotron's YAML, torchtitan's TOML, DeepSpeed's JSON, accelerate's YAML"
    given.add_argument("--config", metavar="FILE", help=text)
    text = "what it trains, where neither says: a card's name, a card, or a model's config.json"
    given.add_argument("--model", metavar="CARD", help=text)
    given.add_argument("--stack", metavar="S", help="training stack (JSON), or a name (default: the nearest)")


def is_asked(args: argparse.Namespace) -> bool:
    return bool(args.launch or args.config or args.model)


def planned(args: argparse.Namespace) -> PlannedRun:
    """The run of --launch, --config or --model on --cluster. Raises InputError, OSError."""
    import partitioners
    from partitioners._grids.grid_plan import grid_options, grid_settings
    from simulator.cli._run_causes import SimulatedRun
    from simulator.language_models.modelled_profile import modelled_profile
    from simulator.language_models.training_stack import accelerator_of, read_stack, stack_for, stack_of_runtime
    from simulator.network import catalogue
    from simulator.runtime import IDEAL

    if args.launch and args.config:
        raise InputError("launch and config are both given: one of them says how it was started")
    if not args.cluster:
        raise InputError("cluster is not given: say on what it ran, e.g. --cluster dgx-h100")
    started = _started(args)
    args.devices = started.grid.devices
    cluster = _options.read_cluster(args, None)
    named = args.stack or stack_of_runtime(started.runtime, accelerator_of(cluster))
    stack = stack_for(cluster, read_stack(named) if named else None)
    measured = catalogue.read_runtime(args.cluster)
    stack = stack if measured == IDEAL else replace(stack, runtime=measured)
    profile = modelled_profile(started.card, stack, batch_size=4, stack_source=named or "")
    layout = {"layout": ",".join(map(str, started.blocks))} if len(started.blocks) > 1 else {}
    grid = started.grid
    settings = grid_settings(grid, profile, stack)
    plan = partitioners.make_plan(grid.strategy, profile, cluster, settings, seed=0, **grid_options(grid), **layout)
    run = SimulatedRun(profile=profile, cluster=cluster, plan=plan, runtime=stack.runtime)
    return PlannedRun(started=started, cluster=cluster, stack=stack, simulated=run)


def _started(args: argparse.Namespace) -> StartedRun:
    from simulator.language_models.card_files import read_card
    from simulator.language_models.training_grid import TrainingGrid
    from simulator.readers import StartedRun, read_configuration

    if args.launch or args.config:
        return read_configuration(args.launch, args.config, args.model, args.devices)
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
    measured.add_argument("--step-time", metavar="TIME", type=_values.time, help="of a step, e.g. 4.2s")
    text = "tokens a second of one device, e.g. 7500"
    measured.add_argument("--tokens-per-s", metavar="N", type=_values.number, help=text)
    measured.add_argument("--tflops", metavar="N", type=_values.number, help="of one device, as the program says it")
    measured.add_argument("--mfu", metavar="SHARE", type=_values.number, help="as the program says it: 0.42 or 42")
