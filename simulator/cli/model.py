"""Model cards of language models: list them, write a modelled profile, calibrate a training stack.

    shardscope model                                         # the cards that there are
    shardscope model llama3-8b                               # what it holds
    shardscope model llama3-8b --output llama.json           # its profile: modelled, not measured
    shardscope model --calibrate RUNS.csv --stack-output S   # a training stack from measured steps

Which grid, will it fit, how fast, and how to launch it: `shardscope compare CARD`. Other commands take a card in place
of a profile, too; --output is for another GPU, sequence or batch than they would take.

Seconds and bytes come from mechanisms whose constants a training stack holds (--stack); it says what they were
calibrated on.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.one_line_parser import count, option
from simulator.terminal import say

if TYPE_CHECKING:
    from simulator.language_models.model_card import ModelCard
    from simulator.language_models.training_stack import TrainingStack


ELSEWHERE = dict.fromkeys(
    ("--devices", "--strategies", "--zero", "--top", "--runtime", "--json"),
    "which grid, how fast, will it fit: shardscope compare CARD --cluster C --devices N",
)
"""Where options are taken that a user of cards may type here."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "card CARD", "model card (YAML), or the name of one that ships", nargs="?")
    option(parser, "--stack S", "training stack (JSON), or a name (default: the one of the nearest GPU)")
    option(parser, "--device GPU", "another accelerator than the stack's: h100, a100, b200, ...")
    option(parser, "--sequence S", "tokens of a sequence (default: the card's)", count)
    option(parser, "--precision P", "of products: bf16, fp8 (one scale for a tensor), fp8-block or mxfp8")
    option(parser, "--attention K", "kernel of the attention: flash-1, flash-2, fused (the fastest) or scores")
    option(parser, "--batch-size B", "sequences of the profile (default 1)", count)
    option(parser, "--output FILE", "profile to write (JSON)")
    fitting = parser.add_argument_group("calibration")
    option(fitting, "--calibrate CSV", "measured runs, from which the stack's constants are taken")
    option(fitting, "--cluster C", "the preset that they ran on (default dgx-h100)")
    option(fitting, "--stack-output FILE", "training stack to write (JSON)")


def run(args: argparse.Namespace) -> None:
    from simulator import files
    from simulator.language_models.card_files import cards, read_card
    from simulator.language_models.training_stack import nearest_stack, read_stack

    stack = read_stack(args.stack) if args.stack else nearest_stack(args.device or "h100")
    if args.calibrate:
        stack = _calibrated(stack, args)
        say("\n".join(stack.remarks) or f"the runs determine every constant of {stack.name}")
    if args.stack_output:
        files.write_json(stack, args.stack_output)
    if args.device:
        stack = replace(stack, accelerator=args.device)
    stack = stack.with_precision(args.precision).with_attention(args.attention)
    if args.card is None:
        if not args.calibrate:
            say("\n".join(read_card(name).described() for name in cards()))
        return
    card = read_card(args.card)
    if args.sequence:
        card = replace(card, sequence=args.sequence)
    if args.output:
        _write_profile(card, stack, args)
    else:
        say(f"{card.described()}\n{card.source}")
        if card.not_counted:
            say(f"not counted of its configuration: {', '.join(card.not_counted)}")


def _calibrated(stack: TrainingStack, args: argparse.Namespace) -> TrainingStack:
    from partitioners._grids.calibration import calibrated
    from partitioners._grids.measured_rows import measured_plans
    from simulator.network.catalogue import read_preset

    return calibrated(stack, measured_plans(Path(args.calibrate)), read_preset(args.cluster or "dgx-h100").build)


def _write_profile(card: ModelCard, stack: TrainingStack, args: argparse.Namespace) -> None:
    from simulator import files
    from simulator.language_models.modelled_profile import modelled_profile

    command = f"shardscope model {args.card} --stack {args.stack or stack.name} --output {args.output}"
    command += f" --precision {args.precision}" if args.precision else ""
    command += f" --attention {args.attention}" if args.attention else ""
    profile = modelled_profile(
        card, stack, batch_size=args.batch_size or 1, command=command, stack_source=args.stack or ""
    )
    files.write_profile(profile, args.output)
    made_with = f"modelled with {stack.name}, not measured"
    say(f"{args.output}: {len(profile.layers)} layers of {card.name}, {made_with}")
