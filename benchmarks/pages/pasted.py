"""Run again what README.md and docs/*.md paste. Usage: python -m benchmarks.pages.pasted [--write] [--slow] [PAGE ...]

A pasted block names its command, either as the first line of its fence, `$ COMMAND` (more of them may follow, each with
its output below), or in a comment: what stands between `<!-- output: COMMAND -->` and `<!-- end -->`. A line right
above says why a block is not checked by the tests:

    <!-- slow: REASON -->    made anew with --slow only; some need the published measurements (SHARDSCOPE_DATA)
    <!-- real: REASON -->    measured on real hardware: never made anew here, only its commands are parsed

A line "..." stands for lines left out. Numbers may differ by `TOLERANCE`, or by one in the last digit of a fraction or
a percentage; words may not. Without --write, what differs is printed and the exit code is 1. The commands of a block
run in an empty folder; pictures that they write under docs/ there are kept with --write.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks import ROOT
from simulator.errors import ShardscopeError

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TOLERANCE = 0.01
"""Relative; three printed digits are rounded by up to half of it."""
BLOCK = re.compile(
    r"(?:^<!-- (?P<barrier>slow|real): (?P<reason>[^\n]*) -->\n)?"
    r"(?:^```\w*\n(?P<fence>\$ .*?)^```$|^<!-- output: (?P<command>[^\n]*) -->\n(?P<body>.*?)^<!-- end -->$)",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.])([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)(%?)")
ELISION = "..."
PROGRAM = "import sys; from simulator.cli import main; sys.argv[0] = 'shardscope'; sys.exit(main())"


class PastedError(ShardscopeError):
    """A command of a page failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastedCommand:
    """A command line and the lines of output that the page shows; none: the command is shown, not its output."""

    command: str
    lines: tuple[str, ...]

    @property
    def argv(self) -> list[str]:
        """Its words, without `sudo` and comments."""
        words = shlex.split(self.command, comments=True)
        return words[1:] if words[0] == "sudo" else words


@dataclass(frozen=True, slots=True, kw_only=True)
class PastedBlock:
    """Commands with their output, and where in the page's text they stand (start and end in characters).

    barrier: "slow", "real" or "" for a block that is always checked.
    """

    page: Path
    start: int
    end: int
    barrier: str
    reason: str
    commands: tuple[PastedCommand, ...]

    @property
    def name(self) -> str:
        return f"{self.page.name}: {self.commands[-1].command}"


def blocks(page: Path) -> list[PastedBlock]:
    """The pasted blocks of a page, in order."""
    return [_block(page, match) for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def _block(page: Path, match: re.Match[str]) -> PastedBlock:
    group = "body" if match["fence"] is None else "fence"
    text = match[group]
    if group == "fence":
        commands = tuple(_commands(text.splitlines()))
    else:
        lines = tuple(text.splitlines()) or ("",)  # an empty block waits for its output
        commands = (PastedCommand(command=match["command"], lines=lines),)
    start, end = match.span(group)
    barrier, reason = match["barrier"] or "", match["reason"] or ""
    return PastedBlock(page=page, start=start, end=end, barrier=barrier, reason=reason, commands=commands)


def _commands(lines: Sequence[str]) -> Iterator[PastedCommand]:
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield PastedCommand(command=lines[start][2:], lines=tuple(lines[start + 1 : end]))


def rerun(block: PastedBlock, kept: Path | None = None) -> list[PastedCommand]:
    """The block's commands with the output of now, elided as the page elides; pictures in docs/ are copied to `kept`.

    A command without output is not run. Raises PastedError where one fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / "docs").mkdir()
        rerun_commands = [_rerun(pasted, folder) if pasted.lines else pasted for pasted in block.commands]
        if kept is not None:
            for picture in (folder / "docs").glob("*.png"):
                shutil.copy(picture, kept)
    return rerun_commands


def _rerun(pasted: PastedCommand, folder: Path) -> PastedCommand:
    data = (ROOT / os.environ.get("SHARDSCOPE_DATA", "../shared/data")).resolve()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SHARDSCOPE_DATA": str(data), "PYTHONIOENCODING": "utf-8"}
    completed = subprocess.run(
        program(pasted.argv), cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if completed.returncode:
        raise PastedError(f"{pasted.command}: exit code {completed.returncode}: {completed.stderr.strip()[-500:]}")
    output = completed.stdout.strip("\n")
    for picture in (word for word in pasted.argv if word.endswith(".png")):
        output = output.replace(picture.removesuffix(".png") + ".html", picture)
    lines = [line.rstrip() for line in output.splitlines()]
    return PastedCommand(command=pasted.command, lines=tuple(elided(lines, pasted.lines)))


def program(argv: list[str]) -> list[str]:
    """What to start for a documented command line: `shardscope ...` or `python -m ...`, in this interpreter.

    Without matplotlib the command line's pictures become HTML, and benchmarks draw none (their `--plot` comes last).
    """
    pictures = find_spec("matplotlib") is not None
    if argv[0] == "shardscope":
        words = argv if pictures else [re.sub(r"\.png$", ".html", word) for word in argv]
        return [sys.executable, "-c", PROGRAM, *words[1:]]
    if argv[:2] == ["python", "-m"]:
        end = len(argv) if pictures or "--plot" not in argv else argv.index("--plot")
        return [sys.executable, *argv[1:end]]
    raise PastedError(f"{' '.join(argv)}: a pasted command begins with shardscope or python -m")


def elided(lines: Sequence[str], like: Sequence[str]) -> list[str]:
    """`lines` without those that "..." stands for in `like`: as many are kept before and behind it as there."""
    if ELISION not in like:
        return list(lines)
    before = like.index(ELISION)
    behind = len(like) - before - 1
    return [*lines[:before], ELISION, *lines[max(before, len(lines) - behind) :]]


def differences(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """What differs between two outputs beyond the tolerance, one line each."""
    pairs = zip(old, new, strict=False)
    differing = [f"- {before}\n+ {after}" for before, after in pairs if not _same(before, after)]
    lengths = [] if len(old) == len(new) else [f"{len(old)} lines on the page, {len(new)} now"]
    return differing + lengths


def _same(old: str, new: str) -> bool:
    if [_words(text) for text in NUMBER.split(old)[::3]] != [_words(text) for text in NUMBER.split(new)[::3]]:
        return False
    return all(map(_close, NUMBER.findall(old), NUMBER.findall(new)))


def _words(text: str) -> str:
    """Text between numbers, without the padding and the rules of tables, whose lengths follow the numbers' widths."""
    return re.sub(r"─+", "─", " ".join(text.split()))


def _close(old: tuple[str, str], new: tuple[str, str]) -> bool:
    """Whether two numbers, each with its percent sign or "", are the same within the tolerance."""
    (before, sign), (after, other_sign) = old, new
    first, second = float(before.replace(",", "")), float(after.replace(",", ""))
    digits = len(before.partition(".")[2].partition("e")[0])
    last_digit = 10.0**-digits if digits or sign else 0.0
    return sign == other_sign and abs(first - second) <= max(TOLERANCE * abs(first), 1.001 * last_digit)


def made_anew(page: Path, *, slow: bool, write: bool) -> Iterator[tuple[PastedBlock, list[PastedCommand]]]:
    """The blocks of a page that can be made anew here, with what their commands print now."""
    for block in blocks(page):
        if block.barrier in (("", "slow") if slow else ("",)):
            yield block, rerun(block, ROOT / "docs" if write else None)


def rewritten(text: str, remade: Sequence[tuple[PastedBlock, list[PastedCommand]]]) -> str:
    """A page's text with the outputs of `remade` put in place of those of its blocks."""
    for block, commands in reversed(remade):
        is_fence = text[block.start :].startswith("$ ")
        lines = [line for each in commands for line in ([f"$ {each.command}"] if is_fence else []) + [*each.lines]]
        text = text[: block.start] + "".join(f"{line}\n" for line in lines) + text[block.end :]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Run again what README.md and docs/*.md paste.")
    parser.add_argument("--write", action="store_true", help="put the outputs of now into the pages")
    parser.add_argument("--slow", action="store_true", help="the blocks marked slow, too")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    args = parser.parse_args()
    stale = False
    for page in args.pages:
        remade = list(made_anew(page.resolve(), slow=args.slow, write=args.write))
        for block, commands in remade:
            pairs = zip(block.commands, commands, strict=True)
            lines = [line for old, new in pairs for line in differences(old.lines, new.lines)]
            stale = stale or bool(lines)
            print("\n".join([f"{block.name}: {'differs' if lines else 'as on the page'}", *lines]), flush=True)
        if args.write:
            page.write_text(rewritten(page.read_text(encoding="utf-8"), remade), encoding="utf-8")
    return int(stale and not args.write)


if __name__ == "__main__":
    sys.exit(main())
