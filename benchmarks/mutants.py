"""Deliberate faults in a copy of the project: how many of them its tests notice.

    python -m benchmarks.mutants               all of benchmarks/faults.txt, some minutes
    python -m benchmarks.mutants --only 3,17   some of them, with what the tests said

Each fault replaces one text in one file; the tests named beside it run until the first fails. A fault that they all
pass, or do not judge within LONGEST_S, survives. The copy stands in a temporary folder: nothing here changes.
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

ROOT = Path(__file__).resolve().parent.parent
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="numbers with commas between, from 1")
    args = parser.parse_args()
    faults = read_faults()
    numbers = [int(word) for word in args.only.split(",")] if args.only else list(range(1, len(faults) + 1))
    caught, began_s = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        for number in numbers:
            fault = faults[number - 1]
            said = noticed(fault, copy)
            caught += said.startswith(("FAILED", "ERROR"))
            print(f"{number:3} {fault.file}: {fault.faulty[:60]!r} {said}", flush=True)
    print(f"{caught} of {len(numbers)} faults caught in {time.monotonic() - began_s:.0f} s")
    sys.exit(caught < len(numbers) * 57 / 60)


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
    """The first test that fails with the fault in the copy, which is mended again: "FAILED ...", or "SURVIVES ..."."""
    path = copy / fault.file
    sound = path.read_text()
    path.write_text(sound.replace(fault.sound, fault.faulty))
    tests = [f"tests/{name}" for name in fault.tests]
    options = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not alone and not screens", "--hypothesis-seed=0")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        completed = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"SURVIVES: no test fails within {LONGEST_S} s"
    finally:
        path.write_text(sound)
    failed = [line for line in completed.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:110] if failed else f"SURVIVES: pytest ends with {completed.returncode}"


if __name__ == "__main__":
    main()
