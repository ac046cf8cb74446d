"""Every command with its arguments, from the parsers that read them.

Usage: python -m benchmarks.pages.command_reference
"""

from __future__ import annotations

import argparse
from collections import Counter

from benchmarks.pages.published import table
from simulator import cli
from simulator.one_line_parser import OneLineParser

SHARED_BY = 4
"""Options that so many commands take alike stand once, above the commands."""
Option = tuple[str, str]
"""How it is typed, and its help."""


def main() -> None:
    taken = {name: options(name) for name in cli.commands()}
    counted = Counter(option for of_one in taken.values() for option in of_one)
    shared = [option for option, number in counted.items() if number >= SHARED_BY]
    print("## Options that many commands take\n\n" + table(("option", "meaning"), shared))
    for name, of_one in taken.items():
        print(f"\n{section(name, of_one, shared)}")


def options(name: str) -> list[Option]:
    """Of a command, in the order of its help; none where it parses for itself."""
    module = cli.commands()[name]
    parser = OneLineParser(prog=f"shardscope {name}", add_help=False)
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    formatter = parser._get_formatter()
    return [
        (f"`{typed(action, formatter)}`", meaning(action, formatter))
        for action in parser._actions
        if action.help != argparse.SUPPRESS
    ]


def typed(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """An argument as its command's help writes it."""
    return formatter._format_action_invocation(action)


def meaning(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """An argument's help in a cell of a table."""
    text = formatter._expand_help(action) if action.help else ""
    return " ".join(text.split()).replace("|", "\\|")


def section(name: str, of_one: list[Option], shared: list[Option]) -> str:
    """A command: what its docstring says, its own arguments, and which of the shared ones it takes."""
    parts = [f"## {name}", (cli.commands()[name].__doc__ or "").strip()]
    own = [option for option in of_one if option not in shared]
    if own:
        parts.append(table(("argument", "meaning"), own))
    if set(of_one) & set(shared):
        parts.append(also(of_one, shared))
    if not of_one:
        parts.append(f"`shardscope {name} --help` lists its options.")
    return "\n\n".join(parts)


def also(of_one: list[Option], shared: list[Option]) -> str:
    """Which shared options a command takes, or which it does not where these are fewer."""
    taken = [option for option in shared if option in of_one]
    missing = [option for option in shared if option not in of_one]
    if len(missing) < len(taken):
        return f"Also the options above, but for {names(missing)}." if missing else "Also the options above."
    return f"Also {names(taken)}."


def names(of: list[Option]) -> str:
    return ", ".join(f"`{option.strip('`').split()[0].rstrip(',')}`" for option, _ in of)


if __name__ == "__main__":
    main()
