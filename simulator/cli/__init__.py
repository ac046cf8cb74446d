"""The command line: one file per command. This folder is the registry.

A file that does not start with "_" is a command; its name, without a trailing underscore, is what the user types,
and the first line of its docstring is its help. It exposes `add_arguments(parser)`, which declares each with
`one_line_parser.option`, and `run(args)`, which returns an exit code where it may not be 0; or, if it parses for
itself, `main(argv) -> int`. Only the command that was typed is imported, and commands import what loads numpy, or
another folder, inside functions, so that help is quick.

Exit codes: 0 done, 1 the reader of our output went away, 2 wrong input (one line on stderr), 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import NoReturn, TextIO

from simulator.cli import _effects, _torchrun
from simulator.errors import InputError, ShardscopeError
from simulator.one_line_parser import OneLineParser, duration, nearest_option
from simulator.terminal import say

LONGEST_LINE, LONGEST_WORD = 1500, 300
OUTPUTS = ("output", "plan_out", "trace_out", "plot", "usage", "hgr", "cluster_output", "stack_output")
"""Arguments that name files to write."""
WRITING_FOLDERS = ("sweep", "validate")
"""Commands whose output is a folder that they make."""


_interrupts: list[int] = []
"""The signals that asked this process to end."""


class OutOfTimeError(BaseException):
    """A command took longer than --timeout. No error of the work itself, so nothing that handles those catches it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's arguments) names; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _interrupts.clear()
    if argv is None:
        signal.signal(signal.SIGTERM, _interrupted)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell had it ignored
            signal.signal(signal.SIGINT, _interrupted)
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
    except OutOfTimeError as error:
        print(f"shardscope: --timeout: not done after {error.seconds:g} s; nothing is half-written", file=sys.stderr)
        return 2
    except (ShardscopeError, OSError) as error:
        if _interrupts:
            return 130
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            error.filename = "standard output or a temporary file"  # all others are written under their names
        line = f"shardscope: {one_line(error)}"
        if _torchrun.speaks(error):
            say(line, stream=sys.stderr)
        _torchrun.end_report_with(line)
        return 2
    except Exception:
        if _interrupts:  # an import that was broken off fails in a way of its own
            return 130
        raise


def _interrupted(number: int, _: object) -> NoReturn:
    """End as Ctrl-C does, so that files are closed and child processes stopped."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def commands() -> dict[str, ModuleType]:
    """The command modules by the name that the user types, sorted."""
    return {name: _load(name) for name in _files()}


@cache
def _files() -> dict[str, str]:
    """The files of the commands, without their endings, by the name that the user types, sorted."""
    files = sorted(name.removesuffix(".py") for name in os.listdir(__path__[0]) if name.endswith(".py"))
    return {file.rstrip("_"): file for file in files if not file.startswith("_")}


def _load(name: str) -> ModuleType:
    """The module of a command. Each start needs but one of them, so the others are not imported."""
    return importlib.import_module(f"{__name__}.{_files()[name]}")


def _help_line(file: str) -> str:
    """The first line of the docstring of a command's file, without its full stop."""
    with open(os.path.join(__path__[0], f"{file}.py"), encoding="utf-8") as lines:
        return lines.readline().strip('"\n').rstrip(".")


class _Version(argparse.Action):
    """Print the version, which is looked up only then, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from simulator.version import version

        print(f"shardscope {version()}")
        parser.exit()


def _dispatch(argv: list[str]) -> int:
    words = _from_command(argv)
    module = _load(words[0]) if words and words[0] in _files() else None
    if module is not None and hasattr(module, "main"):
        _check_words(words)
        limit = OneLineParser(prog="shardscope", add_help=False)
        limit.add_argument("--timeout", dest="timeout_s", type=duration)
        with _time_limit(limit.parse_args(argv[: len(argv) - len(words)]).timeout_s):
            code = int(module.main(list(words[1:])))
        _say_slow_engine(sys.stderr)
        return code
    args = parse(argv)
    _check_outputs(args)
    with _time_limit(args.timeout_s):
        code = int(args.run(args) or 0)
    to_read = not getattr(args, "json", False) and "-" not in (getattr(args, name, None) for name in OUTPUTS)
    _say_slow_engine(sys.stdout if to_read else sys.stderr)
    return code


def _say_slow_engine(stream: TextIO) -> None:
    """Say so where steps were simulated by the slow engine, here or in child processes."""
    engine = sys.modules.get("simulator.engine")
    words = engine.slow_engine_words() if engine else ""
    if words:
        say(f"note: {words}", stream=stream)


def _check_words(words: Sequence[str]) -> None:
    """Raise InputError for an empty argument of a command that parses for itself."""
    if "" in words:
        before = words[words.index("") - 1]
        raise InputError(f"{before}: it is empty; write a value, or leave the option out")


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise InputError where a file that the command is to write cannot be, before its work begins."""
    from simulator.files import check_writable

    for name in OUTPUTS:
        written = getattr(args, name, None)
        for path in written if isinstance(written, list) else [written]:
            if path == "-" and getattr(args, "json", False):
                raise InputError(f"{name} is -: standard output cannot hold both it and --json; name a file")
            if path is not None and args.command not in WRITING_FOLDERS:
                check_writable(path)


@contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTimeError in the body after so many seconds of the clock; None: never."""
    if seconds is None:
        yield
        return
    if not hasattr(signal, "setitimer"):
        raise InputError("--timeout: this system has no timers of signals; leave it out")

    def stop(*_: object) -> NoReturn:
        raise OutOfTimeError(seconds)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments of a command line; `argv` in them keeps it as it was."""
    words = _from_command(argv)
    args, unknown = _parser(words[0] if words else "").parse_known_args(argv)
    if unknown:
        raise InputError(_not_taken(words[0], unknown))
    args.argv = list(argv)
    args.command = words[0]
    typed = _effects.typed(args)
    empty = [name for name, value in sorted(vars(args).items()) if value in ("", [""])]
    if empty:
        which = ", ".join(f"--{name.replace('_', '-')}" if name in typed else name.upper() for name in empty)
        raise InputError(f"{which}: it is empty; write a value, or leave the option out")
    _effects.check_once(args)
    return args


def _not_taken(name: str, unknown: Sequence[str]) -> str:
    """What to do about arguments that command `name` does not take: the nearest option, or who takes it."""
    if name not in _files():
        return f"unrecognized arguments: {name}; shardscope --help shows how"
    option = unknown[0].partition("=")[0]
    near = nearest_option(option, options_of(name)) if option.startswith("--") else None
    elsewhere = getattr(_load(name), "ELSEWHERE", {}).get(option)
    hint = f" ({elsewhere})" if elsewhere else f", did you mean {near}?" if near else ""
    return f"{name}: unrecognized arguments: {' '.join(unknown)}{hint}; shardscope {name} --help shows how"


def _from_command(argv: Sequence[str]) -> Sequence[str]:
    """The command and what follows it, without the options before it."""
    if argv and argv[0] == "--timeout":
        return argv[2:]
    return argv[1:] if argv and argv[0].startswith("--timeout=") else argv


def options_of(name: str) -> list[str]:
    """The long options of a command; none for one that parses for itself."""
    module = _load(name)
    if not hasattr(module, "add_arguments"):
        return ["--help"]
    parser = OneLineParser()
    module.add_arguments(parser)
    return [word for action in parser._actions for word in action.option_strings if word.startswith("--")]


def _parser(name_typed: str) -> argparse.ArgumentParser:
    """The parser of the command that was typed, or of all where none was, which their arguments are not asked for."""
    parser = OneLineParser(prog="shardscope", description="Simulate how a network trains on many devices.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    text = "end after so long, e.g. 10min, with code 2 and nothing half-written; before the command"
    parser.add_argument("--timeout", dest="timeout_s", metavar="TIME", type=duration, help=text)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    files = _files()
    for name, file in ({name_typed: files[name_typed]} if name_typed in files else files).items():
        command = subparsers.add_parser(name, help=_help_line(file))
        if name == name_typed:
            module = _load(name)
            command.description = (module.__doc__ or "").strip()
            command.formatter_class = argparse.RawDescriptionHelpFormatter
            if hasattr(module, "add_arguments"):
                module.add_arguments(command)
                command.set_defaults(run=module.run)
    return parser


def one_line(error: Exception) -> str:
    """An error in one line of at most LONGEST_LINE characters, in words of LONGEST_WORD, control characters escaped."""
    from simulator.file_gate import visible

    named = isinstance(error, OSError) and error.filename is not None
    text = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[attr-defined]
    words = [
        word if len(word) <= LONGEST_WORD else f"{word[:60]}... ({len(word):,} characters)" for word in text.split()
    ]
    line = visible(" ".join(words))
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
