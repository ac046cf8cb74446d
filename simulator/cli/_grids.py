"""What `compare` does with a model card: ranks the grids of a language model and prints how to launch the best."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import shorten
from time import perf_counter
from typing import TYPE_CHECKING

from simulator.cli import _effects, _options, _values
from simulator.errors import InputError, UnknownNameError
from simulator.terminal import say

if TYPE_CHECKING:
    from partitioners._grids.ranking import Ranking, SimulatedGrid
    from simulator.cli._tables import TextTable
    from simulator.cluster import Cluster
    from simulator.language_models.model_card import ModelCard
    from simulator.language_models.training_grid import TrainingGrid
    from simulator.language_models.training_stack import TrainingStack
    from simulator.workload import Profile

OWN = ("sequence", "stack", "precision", "runtime", "top", "budget")
"""Options that count for cards alone."""
COUNTING = (
    *OWN, "cluster", "devices", "batch_size", "strategies", "zero", "json", "bandwidth", "latency", "efficiency",
    "speed", "output",
)  # fmt: skip
BUDGET_S = 30.0
"""Seconds of simulating, where nobody says."""
DEGREES = ("data", "context", "tensor", "pipeline", "expert")
MAY_GO = ("virtual", "bubble", "90% range", "MFU", "$/M tokens", "tok/s/GPU")
"""Columns that a narrow terminal does not get."""


def add_card_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """What a card's profile is made with, in a group of its own."""
    cards = parser.add_argument_group("where PROFILE is a model card")
    cards.add_argument("--sequence", metavar="S", type=_values.count, help="tokens of a sequence (default: the card's)")
    cards.add_argument("--stack", metavar="S", help="training stack (JSON), or a name (default: the nearest)")
    text = "of products: bf16, fp8 (one scale for a tensor), fp8-block or mxfp8 (default: the stack's)"
    cards.add_argument("--precision", metavar="P", help=text)
    return cards


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cards = add_card_arguments(parser)
    runtimes = "megatron, nanotron, torchtitan or fsdp2"
    text = f"whose command to print for the best: {runtimes} (default: fsdp2 for data parallelism, else megatron)"
    cards.add_argument("--runtime", metavar="R", help=text)
    cards.add_argument("--top", metavar="K", type=_values.count, help="splits to print (default 5)")
    text = "time to simulate grids; the rest keeps its bound (default 30s)"
    cards.add_argument("--budget", metavar="TIME", type=_values.time, help=text)


def check_profile(args: argparse.Namespace) -> None:
    """Raise InputError for options of cards beside a profile."""
    _effects.refuse(_effects.typed(args) & {*OWN}, "counts only where PROFILE is a model card; leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridInputs:
    """What grids are ranked of."""

    card: ModelCard
    profile: Profile
    cluster: Cluster
    stack: TrainingStack
    batch: int
    """Sequences of a step."""


def inputs(args: argparse.Namespace) -> GridInputs:
    """As the command line says them; what it leaves open by the card, the cluster and --runtime. Raises InputError."""
    from simulator.language_models.card_files import read_card
    from simulator.language_models.grids import default_batch
    from simulator.language_models.training_stack import (
        accelerator_of,
        read_stack,
        runtime_of,
        stack_for,
        stack_of_runtime,
    )
    from simulator.network import catalogue

    _effects.refuse(_effects.typed(args) - {*COUNTING}, "has no effect on the grids of a model card; leave it out")
    cluster = _options.read_cluster(args, None)
    named = args.stack or stack_of_runtime(args.runtime, accelerator_of(cluster)) or stack_of_runtime(args.runtime)
    stack = stack_for(cluster, read_stack(named) if named else None)
    profile = _options.profile_on(
        args.profile, args.cluster, stack=named, sequence=args.sequence, precision=args.precision
    )
    stack = replace(stack, runtime=runtime_of(profile, catalogue.read_runtime(args.cluster)))
    card = read_card(args.profile)
    card = replace(card, sequence=args.sequence or card.sequence)
    batch = args.batch_size or default_batch(card, cluster.workers)
    return GridInputs(card=card, profile=profile, cluster=cluster, stack=stack, batch=batch)


def run(args: argparse.Namespace) -> int:
    """Rank the grids of `args.profile`, a card. Raises InputError where none fits."""

    from partitioners._grids.ranking import ranked_grids
    from simulator.cli import _printing
    from simulator.exports.launch import LAUNCHED

    if args.runtime and args.runtime not in LAUNCHED:
        raise UnknownNameError.of("runtime", args.runtime, LAUNCHED)
    of, top = inputs(args), args.top or 5
    card, profile, cluster, stack = of.card, of.profile, of.cluster, of.stack
    ends_s = perf_counter() + (args.budget or BUDGET_S)

    def wanted(grid: TrainingGrid) -> bool:
        return args.zero in (None, grid.zero_stage) and (not args.runtime or _runs(args.runtime, card, grid, stack))

    with _printing.progress() as progress:
        ranking = ranked_grids(
            card, profile, cluster, stack, of.batch,
            top=top, strategies=_strategies(args), wanted=wanted, progress=progress,
            time_left_s=lambda: ends_s - perf_counter(),
        )  # fmt: skip
    runs = ranking.runs
    command = _command(args.runtime, card, runs, stack.accelerator)
    if args.json:
        grids = [row(each) for each in ranking.simulated]
        bounded = {
            "grids": len(ranking.bounded),
            "no_step_below_s": ranking.bound_s,
            "may_be_best": not ranking.certain,
        }
        stands_on = asdict(runs[0].interval.evidence) if runs and runs[0].interval.evidence else None
        _printing.print_json({"grids": grids, "bounded": bounded, "command": command, "evidence": stands_on})
    else:
        _print(card, profile, ranking, stack, cluster, top, command)
        if command and args.precision not in (None, "bf16"):
            print(f"# its options for products in {args.precision} are the runtime's own, and not in this line")
        if args.runtime and command and not stack.name.startswith(args.runtime.rstrip("2")):
            print(f"# seconds are those of {stack.name}: no stack of {args.runtime} on this GPU ships")
    if not runs:
        raise InputError(f"devices is {cluster.workers}: no grid of them fits {card.name}; take more")
    return 0


def _strategies(args: argparse.Namespace) -> Sequence[str]:
    """Those asked for. Raises InputError for others than place grids."""
    from simulator.language_models.grids import STRATEGIES

    if args.strategies == "all":
        return STRATEGIES
    names = [name.strip() for name in args.strategies.split(",") if name.strip()]
    for name in names:
        if name not in STRATEGIES:
            raise UnknownNameError.of("strategy of model cards", name, STRATEGIES)
    return names or STRATEGIES


def _runs(runtime: str, card: ModelCard, grid: TrainingGrid, stack: TrainingStack) -> bool:
    """Whether a runtime has a command for a grid. Raises InputError where it cannot run it."""
    from simulator.exports.launch import launch_command

    return bool(launch_command(runtime, card, grid, stack.accelerator))


def _command(runtime: str | None, card: ModelCard, runs: Sequence[SimulatedGrid], accelerator: str) -> str:
    """How to launch the best grid that `runtime` (None: the one for its strategy) can run.

    Raises InputError where the runtime asked for can run none.
    """
    from simulator.exports.launch import launch_command

    refusal: InputError | None = None
    for each in runs:
        named = runtime or ("megatron" if each.grid.strategy == "megatron" else "fsdp2")
        try:
            command = launch_command(named, card, each.grid, accelerator, each.plan)
        except InputError as error:
            refusal = refusal or error
            continue
        return (
            command
            if each is runs[0]
            else f"# {', '.join(grid_words(each.grid))}, the best that {named} runs\n{command}"
        )
    if refusal and runtime:
        raise refusal
    return f"# no command: {refusal}" if refusal else ""


def _print(
    card: ModelCard, profile: Profile, ranking: Ranking, stack: TrainingStack, cluster: Cluster, top: int, command: str
) -> None:
    from partitioners._grids.ranking import best_of_splits
    from simulator.cli import _tables

    runs = ranking.runs
    for each in runs[:1]:
        say(*_answer(each, profile, stack, cluster))
        if not ranking.certain:
            say("time ran out: a grid that was not simulated may be faster; --budget takes more")
        print()
    grids = [each.grid for each in ranking.simulated] + [grid for grid, _ in (*ranking.too_large, *ranking.refused)]
    batch = f"batch {grids[0].batch} of {card.sequence} tokens"
    say(f"{card.described()} on {cluster.name}, {cluster.workers} devices, {batch}")
    source = f" ({shorten(stack.source.partition(':')[0], 80, placeholder=' ...')})" if stack.source else ""
    say(f"modelled, not measured: {stack.name}{source}")
    if runs and runs[0].interval.evidence:
        say(f"stands on {runs[0].interval.evidence.words}")
    if card.not_counted:
        say(f"not counted of its configuration: {', '.join(card.not_counted)}")
    total = len(grids) + len(ranking.bounded)
    rest = (
        f"; none of the other {len(ranking.bounded)} is faster than {ranking.bound_s:.3f} s" if ranking.bounded else ""
    )
    say(f"{total} grids, {len(ranking.simulated)} simulated{rest}")
    splits = list(best_of_splits(runs))
    named = splits[:top] + [each for each in splits[top:] if each.grid.strategy != "megatron"]
    _tables.print_table(_table(named), MAY_GO)
    say(*_left_out(ranking, top))
    if command:
        print(f"\n{command}")


def _answer(each: SimulatedGrid, profile: Profile, stack: TrainingStack, cluster: Cluster) -> Iterator[str]:
    """The best grid: the step first."""
    from simulator.cli._answers import Priced, answer, best_change

    grid, of = each.grid, Priced(name="tokens", per_sample=each.card.sequence)
    micro = f"micro-batches {grid.microbatch} x {grid.accumulation}"
    again = f", {grid.recomputation} recomputation" if grid.recomputation != "none" else ""
    yield f"best: {' x '.join(grid_words(grid))}, {micro}{again}"
    change = best_change(profile, cluster, each.plan, stack.runtime, each.report)
    yield from answer(each.report, cluster, each.interval, change, of)


def _table(named: Sequence[SimulatedGrid]) -> TextTable:
    """A row per grid, the best of its split; a price only where there is one."""
    from simulator.cli import _tables

    degrees = [name for name in DEGREES if _varies(name, named)]
    rows = [_cells(each, degrees) for each in named]
    shown = [title for title in rows[0] if any(row[title] for row in rows)] if rows else ["strategy", "fits"]
    table = _tables.new_table("strategy", *shown[1:-1], last="fits")
    for row in rows:
        table.add_row(*(row[title] for title in shown))
    return table


def _varies(degree: str, named: Iterable[SimulatedGrid]) -> bool:
    return degree == "data" or any(getattr(each.grid, degree) > 1 for each in named)


def _cells(each: SimulatedGrid, degrees: Sequence[str]) -> dict[str, str]:
    """By the titles of their columns; empty where a grid has none."""
    from simulator.cli._answers import Priced, dollars, dollars_per_million, within

    grid, report = each.grid, each.report
    price = dollars(dollars_per_million(report, Priced(name="tokens", per_sample=each.card.sequence)))
    return {
        "strategy": grid.strategy,
        **{degree: str(getattr(grid, degree)) for degree in degrees},
        "virtual": str(grid.chunks) if grid.chunks > 1 else "",
        "zero": f"{grid.zero_stage} by {grid.shard_group}" if grid.shard_group else str(grid.zero_stage),
        "recompute": grid.recomputation if grid.recomputation != "none" else "",
        "micro": f"{grid.microbatch} x {grid.accumulation}",
        "step s": f"{report.step_s:.3f}",
        "90% range": within(each.interval),
        "tok/s/GPU": f"{each.tokens_per_s / grid.devices:,.0f}",
        "MFU": f"{each.mfu:.1%}",
        "$/M tokens": price if report.dollars_per_step is not None else "",
        "bubble": f"{report.bubble_ratio:.0%}",
        "GiB": f"{report.peak_memory_bytes / 2**30:.1f}",
        "fits": {"fits": "yes"}.get(report.fit, report.fit),
    }


def _left_out(ranking: Ranking, top: int) -> Iterator[str]:
    """Splits of which no grid runs, with the reason of the one that needs least."""
    running = {split_words(grid) for grid in (*ranking.bounded, *(each.grid for each in ranking.runs))}
    reasons: dict[tuple[str, ...], tuple[float, str]] = {}
    unfit = [(each.grid, each.report.peak_memory_bytes, each.report.verdict) for each in ranking.simulated]
    unfit += [
        (grid, bound.peak_bytes, f"needs at least {bound.peak_bytes / 2**30:.1f} GiB")
        for grid, bound in ranking.too_large
    ]
    unfit += [(grid, float("inf"), reason) for grid, reason in ranking.refused]
    for grid, needed_bytes, reason in unfit:
        if split_words(grid) not in running:
            split = split_words(grid)
            reasons[split] = min(reasons.get(split, (float("inf"), reason)), (needed_bytes, reason))
    if reasons:
        yield f"{len(reasons)} split{'s' * (len(reasons) > 1)} cannot run, whatever the micro-batch; why, at the least:"
    ordered = sorted(reasons.items(), key=lambda item: len(item[0]))
    for split, (_, reason) in ordered[:top]:
        yield f"  {' x '.join(split)}: {reason}"
    if len(ordered) > top:
        yield f"  and {len(ordered) - top} more"


def split_words(grid: TrainingGrid) -> tuple[str, ...]:
    return (*_degrees(grid), f"ZeRO-{grid.zero_stage}")


def grid_words(grid: TrainingGrid) -> tuple[str, ...]:
    """The same with virtual stages and groups that share states, where there are any."""
    chunks = (f"virtual stages {grid.chunks}",) if grid.chunks > 1 else ()
    group = f" in groups of {grid.shard_group}" if grid.shard_group else ""
    return (*_degrees(grid), *chunks, f"ZeRO-{grid.zero_stage}{group}")


def _degrees(grid: TrainingGrid) -> tuple[str, ...]:
    """Those above 1, by name."""
    return tuple(f"{name} {getattr(grid, name)}" for name in DEGREES if getattr(grid, name) > 1)


def row(each: SimulatedGrid) -> dict[str, object]:
    """A grid for programs; seconds are of a step, per device those of the one that computes most."""
    from partitioners._grids.grid_plan import simulate_options

    grid, report, interval = each.grid, each.report, each.interval
    device = max(report.devices, key=lambda device: device.compute_s)
    return {
        "strategy": grid.strategy, "data": grid.data, "context": grid.context, "tensor": grid.tensor,
        "pipeline": grid.pipeline, "chunks": grid.chunks, "expert": grid.expert, "zero_stage": grid.zero_stage,
        "shard_group": grid.shard_group,
        "recomputation": grid.recomputation, "microbatch": grid.microbatch, "accumulation": grid.accumulation,
        "step_s": report.step_s, "low_s": interval.low_s, "high_s": interval.high_s,
        "tokens_per_s": each.tokens_per_s, "mfu": each.mfu, "bubble": report.bubble_ratio, "fit": report.fit,
        "reason": report.verdict, "dollars": report.dollars_per_step, "peak_bytes": report.peak_memory_bytes,
        "compute_s": device.compute_s, "exposed_communication_s": device.exposed_communication_s,
        "launch_s": device.launch_s, "bottleneck": str(report.bottleneck), "simulate": simulate_options(grid),
    }  # fmt: skip
