"""Deliberate faults in a copy of the project: how many of them its tests notice.

    python -m benchmarks.robustness.mutants                        all of faults.txt, some minutes
    python -m benchmarks.robustness.mutants --drawn 40             as many drawn by rules; a new seed, which is printed
    python -m benchmarks.robustness.mutants --drawn 40 --seed 7    the same again
    python -m benchmarks.robustness.mutants --only 3,17            some of them, with what the tests said

Each fault replaces one text in one file; the tests named beside it, or of its area (see drawn_faults), run until the
first fails. A fault that they all pass survives; of one that they do not judge within LONGEST_S nothing is known where
it was drawn, and otherwise it survives, too. Tests of digests do not count. The copy stands in a temporary folder:
nothing here changes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from benchmarks import ROOT
from benchmarks.robustness import drawn_faults as drawn

FAULTS = Path(__file__).with_name("faults.txt")
COPIED = ("shardscope", "simulator", "partitioners", "traces", "dashboard", "tests", "benchmarks", "examples", "docs")
LONGEST_S = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A text that stands once in a file of the project, what replaces it, and the test files that should notice."""

    file: str
    tests: tuple[str, ...]
    sound: str
    faulty: str
    at: int | None = None
    """Where it stands, in bytes, if not once; drawn ones say that."""

    def put_into(self, source: str) -> str:
        """The source with the fault."""
        if self.at is None:
            return source.replace(self.sound, self.faulty)
        content, after = source.encode(), self.at + len(self.sound.encode())
        return (content[: self.at] + self.faulty.encode() + content[after:]).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="numbers with commas between, from 1")
    parser.add_argument("--drawn", type=int, help="so many faults drawn by rules, in place of the list")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="of what is drawn")
    args = parser.parse_args()
    if args.drawn:
        print(f"seed {args.seed}", flush=True)
    faults = drawn_faults(args.drawn, args.seed) if args.drawn else read_faults()
    numbers = [int(word) for word in args.only.split(",")] if args.only else list(range(1, len(faults) + 1))
    caught, unknown, began_s = 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        for number in numbers:
            fault = faults[number - 1]
            said = noticed(fault, copy)
            caught += said.startswith(("FAILED", "ERROR"))
            unknown += said.startswith("LATE") and bool(args.drawn)
            where = f":{_line(fault)}" if fault.at is not None else ""
            print(f"{number:3} {fault.file}{where}: {fault.sound[:60]!r} -> {fault.faulty[:60]!r} {said}", flush=True)
    judged = len(numbers) - unknown
    print(f"{caught} of {judged} faults caught, {unknown} not judged, in {time.monotonic() - began_s:.0f} s")
    sys.exit(caught < judged * (0.9 if args.drawn else 57 / 60))


def drawn_faults(count: int, seed: int) -> list[Fault]:
    """So many faults drawn by the rules of `drawn_faults`."""
    return [
        Fault(file=file, tests=drawn.tests_of(file), sound=change.sound, faulty=change.faulty, at=change.at)
        for file, change in drawn.drawn(count, seed)
    ]


def _line(fault: Fault) -> int:
    return (ROOT / fault.file).read_bytes()[: fault.at].count(b"\n") + 1


def read_faults() -> list[Fault]:
    """The faults of the list, in its order. Raises ValueError where a sound text does not stand exactly once."""
    faults = []
    for block in FAULTS.read_text().split("\n\n")[1:]:
        head, sound, faulty = block.strip().splitlines()
        file, _, tests = head.partition(": ")
        fault = Fault(file=file, tests=tuple(tests.split()), sound=sound[2:], faulty=faulty[2:])
        count = (ROOT / file).read_text().count(fault.sound)
        if count != 1 or not (sound.startswith("- ") and faulty.startswith("+ ")):
            raise ValueError(f"{file}: {fault.sound!r} stands there {count} times, not once")
        faults.append(fault)
    return faults


def copied(folder: Path) -> Path:
    """A copy of the project without what was built, with the compiled engine as it is."""
    copy = folder / "copy"
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "Makefile", "hatch_build.py"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def noticed(fault: Fault, copy: Path) -> str:
    """The first test that fails with the fault in the copy, then mended: "FAILED ...", "LATE ..." or "SURVIVES ...".

    Tests that measure come last, and count where they pass again without the fault.
    """
    path = copy / fault.file
    sound = path.read_text()
    path.write_text(fault.put_into(sound))
    try:
        said = _said_by_tests(fault, copy, "not alone and not screens")
        measured = _said_by_tests(fault, copy, "alone and not screens") if said.startswith("SURVIVES") else ""
    finally:
        path.write_text(sound)
    if measured.startswith("FAILED") and _said_by_tests(fault, copy, "alone and not screens").startswith("SURVIVES"):
        return measured
    return said


def _said_by_tests(fault: Fault, copy: Path, marked: str) -> str:
    tests = [f"tests/{name}" for name in fault.tests]
    options = ("-x", "-q", "-p", "no:cacheprovider", "-m", marked, "--hypothesis-seed=0")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        completed = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"LATE: no test fails within {LONGEST_S} s"
    if completed.returncode < 0:
        return f"FAILED: a test ended the interpreter by signal {-completed.returncode}"
    failed = [line for line in completed.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:110] if failed else f"SURVIVES: pytest ends with {completed.returncode}"


if __name__ == "__main__":
    main()
