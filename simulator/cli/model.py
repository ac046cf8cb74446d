"""Language models from their cards: rank the grids of so many GPUs, or make a modelled profile.

    shardscope model                                         the cards that there are
    shardscope model llama3-8b --devices 64 --batch-size 256 which grid, will it fit, how fast, and the command
    shardscope model llama3-8b --output llama.json           a profile for the other commands: modelled, not measured
    shardscope model --calibrate RUNS.csv --stack-output S   a training stack from measured steps

Seconds and bytes come from mechanisms whose constants a training stack holds (--stack); it says what they were
calibrated on.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cli import _options
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.transformers.grid_search import RankedGrid
    from simulator.transformers.model_card import ModelCard
    from simulator.transformers.training_stack import TrainingStack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("card", metavar="CARD", nargs="?", help="model card (YAML), or the name of one that ships")
    parser.add_argument("--stack", metavar="S", default="nanotron-h100", help="training stack (JSON), or a name")
    parser.add_argument("--device", metavar="GPU", help="another accelerator than the stack's: h100, a100, b200, ...")
    parser.add_argument(
        "--sequence", metavar="S", type=_options.count, help="tokens of a sequence (default: the card's)"
    )
    parser.add_argument("--batch-size", metavar="B", type=_options.count, help="sequences of a step (default 256)")
    parser.add_argument("--output", metavar="FILE", help="profile to write (JSON)")
    ranking = parser.add_argument_group("ranking grids")
    ranking.add_argument("--devices", metavar="N", type=_options.count, help="GPUs, 8 in a node")
    ranking.add_argument("--top", metavar="K", type=_options.count, default=10, help="rows to print (default 10)")
    runtimes = "megatron, nanotron, torchtitan, fsdp2"
    ranking.add_argument("--runtime", metavar="R", default="megatron", help=f"whose command to print: {runtimes}")
    ranking.add_argument("--json", action="store_true", help="print JSON instead")
    fitting = parser.add_argument_group("calibration")
    fitting.add_argument("--calibrate", metavar="CSV", help="measured runs, from which the stack's constants are taken")
    fitting.add_argument("--stack-output", metavar="FILE", help="training stack to write (JSON)")


def run(args: argparse.Namespace) -> int:
    from simulator.transformers.model_card import cards, read_card
    from simulator.transformers.training_stack import read_stack, write_stack

    stack = read_stack(args.stack)
    if args.calibrate:
        stack = _calibrated(stack, args.calibrate)
        print("\n".join(stack.remarks) or f"every constant of {stack.name} was told by the runs")
    if args.stack_output:
        write_stack(stack, args.stack_output)
    if args.device:
        stack = replace(stack, accelerator=args.device)
    if args.card is None:
        if not args.calibrate:
            print("\n".join(_described(read_card(name)) for name in cards()))
        return 0
    card = read_card(args.card)
    if args.sequence:
        card = replace(card, sequence=args.sequence)
    if args.output:
        _write_profile(card, stack, args)
    if args.devices:
        _rank(card, stack, args)
    if not args.output and not args.devices:
        raise InputError(f"{card.name}: name --devices to rank grids, or --output for a profile")
    return 0


def _described(card: ModelCard) -> str:
    experts = f", {card.experts_per_token} of {card.experts} experts" if card.experts else ""
    size = f"{card.parameters / 1e9:.2f} billion parameters"
    return f"{card.name:<22} {size}, {card.layers} blocks of {card.hidden}{experts}, sequence {card.sequence}"


def _calibrated(stack: TrainingStack, path: str) -> TrainingStack:
    from simulator.transformers.calibration import calibrated
    from simulator.transformers.measured_rows import measured_plan, read_rows, usable

    rows = usable(read_rows(Path(path)))
    if not rows:
        raise InputError(f"{path}: no row is measured and free of suspicion; a calibration needs at least one")
    return calibrated(stack, [measured_plan(row) for row in rows])


def _write_profile(card: ModelCard, stack: TrainingStack, args: argparse.Namespace) -> None:
    from simulator import files
    from simulator.transformers.modelled_profile import modelled_profile

    command = f"shardscope model {args.card} --stack {args.stack} --output {args.output}"
    profile = modelled_profile(card, stack, batch_size=args.batch_size or 1, command=command)
    files.write_profile(profile, args.output)
    print(f"{args.output}: {len(profile.layers)} layers of {card.name}, modelled with {stack.name}, not measured")


def _rank(card: ModelCard, stack: TrainingStack, args: argparse.Namespace) -> None:
    from simulator.cli import _printing
    from simulator.transformers.grid_search import ranked_grids
    from simulator.transformers.launch_commands import launch_command

    ranked = ranked_grids(card, args.devices, args.batch_size or 256, stack)
    runs = [each for each in ranked if each.runs]
    if args.json:
        _printing.print_json({"grids": [_row(each) for each in ranked]})
        return
    print(f"{_described(card)}; {args.devices} x {stack.accelerator}, {stack.name}: modelled, not measured")
    unfit = [each for each in ranked if not each.runs]
    print(f"{len(ranked)} grids, of which {len(runs)} run; the best of them:")
    heading = ("data", "tensor", "pipe", "zero", "micro", "accum", "step s", "80 % within", "tok/s/GPU", "MFU", "GiB")
    table = [heading, *map(_cells, runs[: args.top])]
    widths = [max(len(row[i]) for row in table) for i in range(len(heading))]
    print("\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table))
    if unfit:
        fastest = min(unfit, key=lambda each: float(each.step.step_s))
        grid = fastest.grid
        print(
            f"left out, e.g. data {grid.data} x tensor {grid.tensor} x pipeline {grid.pipeline}, micro-batch "
            f"{grid.microbatch}: {fastest.verdict.reason}"
        )
    if not runs:
        raise InputError(f"devices is {args.devices}: no grid of them fits {card.name}; take more")
    print(f"\n{launch_command(args.runtime, card, runs[0].grid)}")


def _cells(each: RankedGrid) -> tuple[str, ...]:
    grid = each.grid
    degrees = (grid.data, grid.tensor, grid.pipeline, grid.zero_stage, grid.microbatch, grid.accumulation)
    peak = max(float(memory.needed) for memory in each.memories) / 2**30
    return (
        *map(str, degrees), f"{float(each.step.step_s):.3f}", f"{each.low_s:.3f} to {each.high_s:.3f}",
        f"{each.tokens_per_s / grid.devices:,.0f}", f"{each.mfu:.1%}",
        f"{peak:.1f}" + ("" if each.verdict.fit == "fits" else f" {each.verdict.fit}"),
    )  # fmt: skip


def _row(each: RankedGrid) -> dict[str, object]:
    grid, step = each.grid, each.step
    kinds = ("parameters", "activations", "logits", "buffers", "kept_gathers")
    return {
        "data": grid.data, "tensor": grid.tensor, "pipeline": grid.pipeline, "zero_stage": grid.zero_stage,
        "microbatch": grid.microbatch, "accumulation": grid.accumulation, "step_s": float(step.step_s),
        "low_s": each.low_s, "high_s": each.high_s, "tokens_per_s": each.tokens_per_s, "mfu": each.mfu,
        "exposed_gradient_s": float(step.exposed_s), "gather_s": float(step.gather_s),
        "update_s": float(step.update_s), "bubble": float(step.bubble), "fit": each.verdict.fit,
        "reason": each.verdict.reason,
        "memory_bytes": [{kind: float(getattr(memory, kind)) for kind in kinds} for memory in each.memories],
    }  # fmt: skip
