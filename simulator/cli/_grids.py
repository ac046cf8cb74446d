"""What `compare` does with a model card: ranks the grids of a language model and prints how to launch the best."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from shlex import quote
from textwrap import shorten
from time import perf_counter
from typing import TYPE_CHECKING

from simulator.cli import _effects, _grid_words, _options, _printing, _tables
from simulator.cli._answers import Priced, answer, best_change
from simulator.errors import InputError, UnknownNameError, require, require_name
from simulator.language_models.card_files import read_card
from simulator.network import catalogue
from simulator.one_line_parser import count, option, time
from simulator.terminal import say
from simulator.units import counted

if TYPE_CHECKING:
    from partitioners._grids.ranking import Ranking, SimulatedGrid
    from simulator.cluster import Cluster
    from simulator.language_models.model_card import ModelCard
    from simulator.language_models.training_grid import TrainingGrid
    from simulator.language_models.training_stack import TrainingStack
    from simulator.workload import Profile

OWN = (*_options.OF_CARD, "runtime", "top", "budget")
"""Options that count for cards alone."""
COUNTING = (
    *OWN, "cluster", "devices", "batch_size", "strategies", "zero", "json", "bandwidth", "latency", "efficiency",
    "speed", "output",
)  # fmt: skip
BUDGET_S = 30.0
"""Seconds of simulating, where nobody says."""


def add_arguments(cards: argparse._ArgumentGroup) -> None:
    """Options of a ranking, in the group of those that count for cards alone."""
    runtimes = "megatron, nanotron, torchtitan or fsdp2"
    text = f"whose command to print for the best: {runtimes} (default: fsdp2 for data parallelism, else megatron)"
    option(cards, "--runtime R", text)
    option(cards, "--top K", "splits to print (default 5)", count)
    option(cards, "--budget TIME", "time to simulate grids; the rest keeps its bound (default 30s)", time)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridInputs:
    """What grids are ranked of."""

    card: ModelCard
    profile: Profile
    cluster: Cluster
    stack: TrainingStack
    batch: int
    """Sequences of a step."""
    named: str | None
    """The stack, where it is not the usual one."""


def inputs(args: argparse.Namespace) -> GridInputs:
    """As the command line says them; what it leaves open by the card, the cluster and --runtime. Raises InputError."""
    from simulator.language_models.grids import default_batch
    from simulator.language_models.training_stack import (
        accelerator_of,
        read_stack,
        runtime_of,
        stack_for,
        stack_of_runtime,
    )

    _effects.refuse(_effects.typed(args) - {*COUNTING}, "has no effect on the grids of a model card; leave it out")
    cluster = _options.read_cluster(args, None)
    named = args.stack or stack_of_runtime(args.runtime, accelerator_of(cluster))
    stack = stack_for(cluster, read_stack(named) if named else None)
    profile = _options.profile_on(
        args.profile, args.cluster, stack=named, sequence=args.sequence, precision=args.precision
    )
    stack = replace(stack, runtime=runtime_of(profile, catalogue.read_runtime(args.cluster)))
    card = read_card(args.profile)
    card = replace(card, sequence=args.sequence or card.sequence)
    batch = args.batch_size or default_batch(card, cluster.workers)
    return GridInputs(card=card, profile=profile, cluster=cluster, stack=stack, batch=batch, named=named)


def run(args: argparse.Namespace) -> int:
    """Rank the grids of `args.profile`, a card. Raises InputError where none fits."""

    from partitioners._grids.ranking import ranked_grids
    from simulator.exports.launch import LAUNCHED, launch_command

    if args.runtime and args.runtime not in LAUNCHED:
        raise UnknownNameError.of("runtime", args.runtime, LAUNCHED)
    of, top = inputs(args), args.top or 5
    card, profile, cluster, stack = of.card, of.profile, of.cluster, of.stack
    ends_s = perf_counter() + (args.budget or BUDGET_S)

    def wanted(grid: TrainingGrid) -> bool:
        """Raises InputError where the runtime asked for cannot run it."""
        if args.zero not in (None, grid.zero_stage):
            return False
        return not args.runtime or bool(launch_command(args.runtime, card, grid, stack.accelerator))

    with _printing.progress() as progress:
        ranking = ranked_grids(
            card, profile, cluster, stack, of.batch,
            top=top, strategies=_strategies(args), wanted=wanted, progress=progress,
            time_left_s=lambda: ends_s - perf_counter(),
        )  # fmt: skip
    runs = ranking.runs
    command = _command(args.runtime, card, runs, stack)
    if args.json:
        asked = {"sequence": args.sequence, "stack": of.named, "precision": args.precision}
        of_card = "".join(f" --{name} {quote(str(value))}" for name, value in asked.items() if value)
        grids = [_grid_words.row(each, of_card) for each in ranking.simulated]
        bounded = {
            "grids": len(ranking.bounded),
            "no_step_below_s": ranking.bound_s,
            "may_be_best": ranking.may_be_best,
        }
        stands_on = asdict(runs[0].interval.evidence) if runs and runs[0].interval.evidence else None
        _printing.print_json({"grids": grids, "bounded": bounded, "command": command, "evidence": stands_on})
    else:
        _print(card, profile, ranking, stack, cluster, top, command)
        if command and args.precision not in (None, "bf16"):
            print(f"# its options for products in {args.precision} are the runtime's own, and not in this line")
    require(len(runs) > 0, "devices", cluster.workers, f"no grid of them fits {card.name}; take more")
    return 0


def _strategies(args: argparse.Namespace) -> Sequence[str]:
    """Those asked for. Raises InputError for others than place grids."""
    from simulator.language_models.grids import STRATEGIES

    if args.strategies == "all":
        return STRATEGIES
    names = [name.strip() for name in args.strategies.split(",") if name.strip()]
    for name in names:
        require_name("strategy of model cards", name, STRATEGIES)
    return names or STRATEGIES


def _command(runtime: str | None, card: ModelCard, runs: Sequence[SimulatedGrid], stack: TrainingStack) -> str:
    """How to launch the best grid that `runtime` (None: one for its strategy) can run.

    Raises InputError where the runtime asked for can run none.
    """
    from simulator.exports.launch import launched_by

    refusal: InputError | None = None
    for each in runs:
        try:
            named, command = launched_by(card, each.grid, stack, each.plan, runtime)
        except InputError as error:
            refusal = refusal or error
            continue
        return (
            command
            if each is runs[0]
            else f"# {', '.join(_grid_words.grid_words(each.grid))}, the best that {named} runs\n{command}"
        )
    if refusal and runtime:
        raise refusal
    return f"# no command: {refusal}" if refusal else ""


def _print(
    card: ModelCard, profile: Profile, ranking: Ranking, stack: TrainingStack, cluster: Cluster, top: int, command: str
) -> None:
    from partitioners._grids.ranking import best_of_splits

    runs = ranking.runs
    for each in runs[:1]:
        say(*_answer(each, profile, stack, cluster))
        if ranking.may_be_best:
            say("time ran out: a grid that was not simulated may be faster; --budget takes more")
        print()
    grids = [each.grid for each in ranking.simulated] + [grid for grid, _ in (*ranking.too_large, *ranking.refused)]
    batch = f"batch {grids[0].batch} of {card.sequence} tokens"
    say(f"{card.described()} on {cluster.name}, {counted(cluster.workers, 'device')}, {batch}")
    source = f" ({shorten(stack.source.partition(':')[0], 80, placeholder=' ...')})" if stack.source else ""
    say(f"modelled, not measured: {stack.name}{source}")
    if runs and runs[0].interval.evidence:
        say(f"stands on {runs[0].interval.evidence.words}")
    if card.not_counted:
        say(f"not counted of its configuration: {', '.join(card.not_counted)}")
    total = len(grids) + len(ranking.bounded)
    rest = "" if runs else "; none fits"
    if ranking.bounded:
        rest = f"; none of the other {len(ranking.bounded)} is faster than {ranking.bound_s:.3f} s"
    say(f"{total} grids, {len(ranking.simulated)} simulated{rest}")
    splits = list(best_of_splits(runs))
    named = splits[:top] + [each for each in splits[top:] if each.grid.strategy != "megatron"]
    if named:
        _tables.print_table(_grid_words.table(named), _grid_words.MAY_GO)
    if named and profile.software["precision"] != "bf16":
        say("MFU: of the dense peak in bf16, as is usual")
    say(*_grid_words.left_out(ranking, top))
    if command:
        print(f"\n{command}")


def _answer(each: SimulatedGrid, profile: Profile, stack: TrainingStack, cluster: Cluster) -> Iterator[str]:
    """The best grid: the step first."""
    grid, of = each.grid, Priced(name="tokens", per_sample=each.card.sequence)
    yield f"best: {' x '.join(_grid_words.grid_words(grid))}, micro-batches {_grid_words.micro_words(grid)}"
    change = best_change(profile, cluster, each.plan, stack.runtime, each.report)
    yield from answer(each.report, cluster, each.interval, change, of)
