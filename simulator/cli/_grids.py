"""What `compare` does with a model card: ranks the grids of a language model and prints how to launch the best."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.cli import _effects, _options, _values
from simulator.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.cluster import Cluster
    from simulator.transformers.grid_search import RankedGrid
    from simulator.transformers.model_card import ModelCard
    from simulator.transformers.training_grid import TrainingGrid
    from simulator.transformers.training_stack import TrainingStack

OWN = ("sequence", "stack", "runtime", "top")
"""Options that count for cards alone."""
COUNTING = (*OWN, "cluster", "devices", "batch_size", "strategies", "zero", "json", "bandwidth", "efficiency")
DEGREES = ("data", "context", "tensor", "pipeline", "expert")
MAY_GO = ("80 % within", "bubble", "MFU", "tok/s/GPU")
"""Columns that a narrow terminal does not get."""
KINDS = ("parameters", "activations", "logits", "buffers", "kept_gathers")
WAITS = ("tensor", "context", "expert", "states")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cards = parser.add_argument_group("where PROFILE is a model card")
    cards.add_argument("--sequence", metavar="S", type=_values.count, help="tokens of a sequence (default: the card's)")
    cards.add_argument("--stack", metavar="S", help="training stack (JSON), or a name (default: the nearest)")
    runtimes = "megatron, nanotron, torchtitan or fsdp2"
    text = f"whose command to print for the best: {runtimes} (default: fsdp2 for data parallelism, else megatron)"
    cards.add_argument("--runtime", metavar="R", help=text)
    cards.add_argument("--top", metavar="K", type=_values.count, help="grids to print (default 10)")


def check_profile(args: argparse.Namespace) -> None:
    """Raise InputError for options of cards beside a profile."""
    unused = [name for name in OWN if name in _effects.typed(args)]
    if unused:
        raise InputError(f"{_effects.spelled(unused)}: counts only where PROFILE is a model card; leave it out")


def run(args: argparse.Namespace) -> int:
    """Rank the grids of `args.profile`, a card. Raises InputError where none fits."""
    from simulator.cli import _printing
    from simulator.transformers.grid_search import ranked_grids
    from simulator.transformers.launch_commands import RUNTIMES
    from simulator.transformers.model_card import read_card
    from simulator.transformers.modelled_profile import STEP_SEQUENCES
    from simulator.transformers.stack_on_cluster import accelerator_of, devices_per_node, nearest_stack, on_cluster
    from simulator.transformers.training_stack import read_stack

    unused = sorted(_effects.typed(args) - {*COUNTING})
    if unused:
        raise InputError(f"{_effects.spelled(unused)}: has no effect on the grids of a model card; leave it out")
    if args.runtime and args.runtime not in RUNTIMES:
        raise UnknownNameError.of("runtime", args.runtime, RUNTIMES)
    card, cluster = read_card(args.profile), _options.read_cluster(args, None)
    card = replace(card, sequence=args.sequence or card.sequence)
    stack = read_stack(args.stack) if args.stack else nearest_stack(accelerator_of(cluster))
    stack = on_cluster(stack, cluster)
    batch = args.batch_size or STEP_SEQUENCES * cluster.workers
    ranked = ranked_grids(
        card, cluster.workers, batch, stack, node_devices=devices_per_node(cluster), strategies=_strategies(args)
    )
    if args.zero is not None:
        ranked = [each for each in ranked if each.grid.zero_stage == args.zero]
    runs = [each for each in ranked if each.runs]
    command = _command(args.runtime, card, runs)
    if args.json:
        _printing.print_json({"grids": [_row(each, cluster) for each in ranked], "command": command})
    else:
        _print(card, ranked, stack, cluster, args.top or 10, command)
    if not runs:
        raise InputError(f"devices is {cluster.workers}: no grid of them fits {card.name}; take more")
    return 0


def _strategies(args: argparse.Namespace) -> Sequence[str]:
    """Those asked for. Raises InputError for others than place grids."""
    from simulator.transformers.grid_search import STRATEGIES

    if args.strategies == "all":
        return STRATEGIES
    names = [name.strip() for name in args.strategies.split(",") if name.strip()]
    for name in names:
        if name not in STRATEGIES:
            raise UnknownNameError.of("strategy of model cards", name, STRATEGIES)
    return names or STRATEGIES


def _command(runtime: str | None, card: ModelCard, runs: Sequence[RankedGrid]) -> str:
    """How to launch the best grid that `runtime` (None: the one for its strategy) can run. Raises InputError."""
    from simulator.transformers.launch_commands import launch_command

    refusal: InputError | None = None
    for each in runs:
        named = runtime or ("megatron" if each.grid.strategy == "megatron" else "fsdp2")
        try:
            command = launch_command(named, card, each.grid)
        except InputError as error:
            refusal = refusal or error
            continue
        return command if each is runs[0] else f"# {', '.join(_split(each))}, the best that {named} runs\n{command}"
    if refusal:
        raise refusal
    return ""


def _print(
    card: ModelCard, ranked: Sequence[RankedGrid], stack: TrainingStack, cluster: Cluster, top: int, command: str
) -> None:
    from simulator.cli import _tables

    console = _tables.new_console()
    batch = ranked[0].grid.batch if ranked else 0
    _tables.say(
        console,
        f"{card.described()} on {cluster.name}, {cluster.workers} devices, batch {batch} of {card.sequence} tokens",
    )
    _tables.say(console, f"modelled with {stack.name}, not measured: {stack.source}" if stack.source else "modelled")
    runs, unfit = [each for each in ranked if each.runs], [each for each in ranked if not each.runs]
    splits = list(_bests(runs))
    _tables.say(console, f"{len(ranked)} grids, of which {len(runs)} run; the best of each split:")
    named = splits[:top] + [each for each in splits[top:] if each.grid.strategy != "megatron"]
    _tables.print_table(console, _table(named), MAY_GO)
    for line in _left_out(unfit, runs, top):
        _tables.say(console, line)
    if command:
        _tables.say(console, f"\n{command}")


def _table(named: Sequence[RankedGrid]) -> Table:
    """A row per grid."""
    from simulator.cli import _tables

    degrees = [name for name in DEGREES if _varies(name, named)]
    again = any(each.grid.recomputation == "full" for each in named)
    columns = (*degrees, "zero", *(("recompute",) if again else ()))
    measures = ("micro", "step s", "80 % within", "tok/s/GPU", "MFU", "bubble", "GiB")
    table = _tables.new_table("strategy", *columns, *measures, last="fits")
    for each in named:
        table.add_row(*_cells(each, degrees, again))
    return table


def _bests(runs: Iterable[RankedGrid]) -> Iterator[RankedGrid]:
    """Of grids that are told apart by ZeRO stage and micro-batch alone, the best."""
    seen: set[tuple[str, ...]] = set()
    for each in runs:
        split = (each.grid.strategy, *_degrees(each.grid))
        if split not in seen:
            seen.add(split)
            yield each


def _varies(degree: str, named: Iterable[RankedGrid]) -> bool:
    return degree == "data" or any(getattr(each.grid, degree) > 1 for each in named)


def _cells(each: RankedGrid, degrees: Sequence[str], again: bool) -> list[str]:
    grid = each.grid
    low_s, high_s = each.interval_s
    return [
        grid.strategy, *(str(getattr(grid, degree)) for degree in degrees), str(grid.zero_stage),
        *((grid.recomputation,) if again else ()), f"{grid.microbatch} x {grid.accumulation}",
        f"{float(each.step.step_s):.3f}", f"{low_s:.3f} to {high_s:.3f}",
        f"{each.tokens_per_s / grid.devices:,.0f}", f"{each.mfu:.1%}", f"{float(each.step.bubble):.0%}",
        f"{each.most_bytes / 2**30:.1f}", {"fits": "yes"}.get(each.verdict.fit, each.verdict.fit),
    ]  # fmt: skip


def _left_out(unfit: Sequence[RankedGrid], runs: Iterable[RankedGrid], top: int) -> Iterator[str]:
    """Splits of which no micro-batch runs, with the reason of the one that needs least."""
    running = {_split(each) for each in runs}
    smallest: dict[tuple[str, ...], RankedGrid] = {}
    for each in sorted(unfit, key=lambda each: (each.grid.recomputation == "none", each.grid.microbatch)):
        if _split(each) not in running:
            smallest.setdefault(_split(each), each)
    if smallest:
        runs_not = "split runs" if len(smallest) == 1 else "splits run"
        yield f"{len(smallest)} {runs_not} with no micro-batch:"
    ordered = sorted(smallest.items(), key=lambda item: len(item[0]))
    for split, each in ordered[:top]:
        yield f"  {' x '.join(split)}: {each.verdict.reason}"
    if len(ordered) > top:
        yield f"  and {len(ordered) - top} more (--json has them)"


def _split(each: RankedGrid) -> tuple[str, ...]:
    return (*_degrees(each.grid), f"ZeRO-{each.grid.zero_stage}")


def _degrees(grid: TrainingGrid) -> tuple[str, ...]:
    """Those above 1, by name."""
    return tuple(f"{name} {getattr(grid, name)}" for name in DEGREES if getattr(grid, name) > 1)


def _row(each: RankedGrid, cluster: Cluster) -> dict[str, object]:
    """A grid for programs: seconds are of a step, those of waits of one block and micro-batch."""
    grid, step, (low_s, high_s) = each.grid, each.step, each.interval_s
    hourly = sum(device.dollars_per_hour or 0.0 for device in cluster.devices[: cluster.workers])
    return {
        "strategy": grid.strategy, "data": grid.data, "context": grid.context, "tensor": grid.tensor,
        "pipeline": grid.pipeline, "expert": grid.expert, "zero_stage": grid.zero_stage,
        "recomputation": grid.recomputation, "microbatch": grid.microbatch, "accumulation": grid.accumulation,
        "step_s": float(step.step_s), "low_s": low_s, "high_s": high_s, "tokens_per_s": each.tokens_per_s,
        "mfu": each.mfu, "exposed_gradient_s": float(step.exposed_s), "gather_s": float(step.gather_s),
        "update_s": float(step.update_s), "bubble": float(step.bubble), "fit": each.verdict.fit,
        "reason": each.verdict.reason, "dollars": float(step.step_s) * hourly / 3600 if hourly else None,
        "block_waits_s": {kind: float(getattr(step.block, f"{kind}_s")) for kind in WAITS},
        "memory_bytes": [{kind: float(getattr(memory, kind)) for kind in KINDS} for memory in each.memories],
    }  # fmt: skip
