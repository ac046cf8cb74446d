"""The command line: one file per command. This folder is the registry.

A file that does not start with "_" is a command; its name, without a trailing underscore, is what the user types,
and the first line of its docstring is its help. It exposes `add_arguments(parser)` and `run(args) -> int`, or, if
it parses for itself, `main(argv) -> int`. Commands import what they need inside functions, so that help is quick.

Exit codes: 0 done, 1 the reader of our output went away, 2 wrong input (one line on stderr), 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from simulator.errors import ShardscopeError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's arguments) names; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more as it exits; let that go nowhere instead of failing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ShardscopeError, OSError) as error:
        print(f"shardscope: {_one_line(error)}", file=sys.stderr)
        return 2


def commands() -> dict[str, ModuleType]:
    """The command modules by the name that the user types, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return {name.rstrip("_"): importlib.import_module(f"{__name__}.{name}") for name in names}


def version() -> str:
    """The installed version; "unknown" in a folder that is not installed."""
    from importlib import metadata

    try:
        return metadata.version("shardscope")
    except metadata.PackageNotFoundError:
        return "unknown"


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, and which takes no shortened options."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **{**keywords, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help shows how\n")


def _dispatch(argv: list[str]) -> int:
    known = commands()
    if argv and hasattr(known.get(argv[0]), "main"):
        return int(known[argv[0]].main(argv[1:]))
    args = parse(argv)
    return int(args.run(args))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments of a command line; `argv` in them keeps it as it was."""
    args = _parser(commands(), argv[0] if argv else "").parse_args(argv)
    args.argv = list(argv)
    return args


def options_of(name: str) -> list[str]:
    """The long options of a command; none for one that parses for itself."""
    module = commands()[name]
    if not hasattr(module, "add_arguments"):
        return ["--help"]
    parser = _Parser()
    module.add_arguments(parser)
    return [word for action in parser._actions for word in action.option_strings if word.startswith("--")]


def _parser(known: dict[str, ModuleType], name_typed: str) -> argparse.ArgumentParser:
    """The parser of all commands; only the one that was typed is asked for its arguments, whose help may load much."""
    parser = _Parser(prog="shardscope", description="Simulate how a network trains on many devices.")
    parser.add_argument("--version", action="version", version=f"shardscope {version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in known.items():
        text = (module.__doc__ or "").strip()
        command = subparsers.add_parser(
            name,
            help=text.splitlines()[0].rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == name_typed and hasattr(module, "add_arguments"):
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
