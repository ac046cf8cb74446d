"""The options of strategies on the command line: --effort, and --set NAME=VALUE for any other."""

from __future__ import annotations

import argparse
import re

from simulator.errors import InputError, nearest
from simulator.one_line_parser import assignment, option, positive
from simulator.units import number_or_text

_OWN = {"optimizer_state", "seed", "progress", "microbatches", "schedule", "effort"}
"""Options of strategies that have an option of the command line of their own, or none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    strategy = parser.add_argument_group("strategy")
    text = "search effort relative to the default, for strategies that search"
    option(strategy, "--effort X", text, positive)
    kind = assignment("NAME=VALUE, e.g. grid=8x8", str, str)
    text = "an option of the strategy's own, e.g. grid=8x8, imbalance=0.05, replicas=true"
    option(strategy, "--set NAME=VALUE", text, kind, repeatable=True)


def read(args: argparse.Namespace, strategy: str, *, alone: bool = True) -> dict[str, object]:
    """The options given that `strategy` takes. Raises InputError for one that it does not.

    alone: no other strategy is asked for the same options; otherwise each takes those that it has.
    """
    import partitioners

    known = partitioners.options(strategy)
    options: dict[str, object] = partitioners.applicable(strategy, effort=args.effort)
    own = sorted(set(known) - _OWN)
    if alone and args.effort is not None and "effort" not in known:
        raise InputError(f"effort is {args.effort}: strategy {strategy} does not search; leave --effort out")
    for name, text in args.set:
        if name not in own:
            if not alone:
                continue
            near = nearest(name, own)
            hint = f", did you mean {near}?" if near else ";"
            raise InputError(
                f"--set {name}: strategy {strategy} has no such option{hint} own: {', '.join(own) or 'none'}"
            )
        options[name] = value(text)
        if isinstance(known[name], bool) and not isinstance(options[name], bool):
            raise InputError(f"--set {name}: {text!r} is neither true nor false")
    return options


def value(text: str) -> object:
    """A number, true or false, AxB as a pair of numbers, or the text itself.

    >>> value("8x4"), value("0.05"), value("true"), value("volume")
    ((8, 4), 0.05, True, 'volume')
    """
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"\d+(x\d+)+", text):
        return tuple(int(part) for part in text.split("x"))
    return number_or_text(text)
