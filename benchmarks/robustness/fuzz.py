"""Damaged files of every format that the simulator reads: each is refused in one line, or gives a sound report.

    python -m benchmarks.robustness.fuzz 20000            with a seed drawn anew, which is printed
    python -m benchmarks.robustness.fuzz 20000 --seed 1

A mutation fails where reading or using the file raises anything but a ShardscopeError or OSError, takes longer than
MOST_S, needs more than MOST_BYTES (where the platform limits it), or gives a number that is negative or not finite.
The same seed and number make the same file, which `--keep` writes:

    python -m benchmarks.robustness.fuzz --seed 1 --only 4711 --keep damaged
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import yaml

from benchmarks import ROOT
from benchmarks.robustness.fuzz_formats import FuzzedFormat, formats
from benchmarks.robustness.mutations import mutated_bytes, mutated_json, mutated_table, mutated_text
from simulator.cli import one_line
from simulator.errors import ShardscopeError

MOST_S = 10.0
MOST_BYTES = 2**30
LONGEST_LINE = 2000


class TooSlow(BaseException):
    """A mutation took longer than MOST_S; no handler of exceptions in the code under test may catch it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=20_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, help="this mutation alone, with its traceback")
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"), help="folder for files that failed")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    _limit_memory()
    numbers = [args.only] if args.only is not None else range(args.count)
    tally, failures = fuzz(numbers, args.seed, args.keep)
    print(f"{sum(tally.values()):,} mutations of {len(formats())} formats, seed {args.seed}:")
    for name in (each.name for each in formats()):
        counts = ", ".join(f"{tally[name, outcome]} {outcome}" for outcome in ("refused", "accepted", "failed"))
        print(f"  {name}: {counts}")
    for line in failures[:40]:
        print(line)
    print(f"{len(failures)} failed")
    sys.exit(bool(failures))


def fuzz(numbers: Iterable[int], seed: int, keep: Path | None = None) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Outcomes by (format, "refused", "accepted" or "failed"), and a line per failure; keep: where those files go."""
    tally: Counter[tuple[str, str]] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            kind, content = damaged(number, seed)
            path = Path(folder) / f"{number}{kind.suffix}"
            path.write_bytes(content)
            outcome, why = tried(kind, path)
            tally[kind.name, outcome] += 1
            if outcome == "failed":
                failures.append(f"mutation {number} of seed {seed}, {kind.name}: {why}")
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / path.name).write_bytes(content)
            path.unlink()
    return tally, failures


def damaged(number: int, seed: int) -> tuple[FuzzedFormat, bytes]:
    """The format and the content of a mutation; the formats take turns."""
    random = Random(f"{seed}/{number}")
    kind = formats()[number % len(formats())]
    if kind.suffix in (".json", ".yaml"):
        written = _dumped(mutated_json(kind.sound, random) if random.random() < 0.8 else kind.sound, kind.suffix)
        changed = random.random()
        text = mutated_text(written, random) if changed < 0.25 else written
        content = text.encode("utf-8", "surrogatepass")
        return kind, mutated_bytes(content, random) if changed > 0.97 else content
    if isinstance(kind.sound, bytes):
        return kind, mutated_bytes(kind.sound, random)
    change = mutated_table if kind.suffix == ".csv" else mutated_text
    return kind, change(kind.sound, random).encode("utf-8", "surrogatepass")


def tried(kind: FuzzedFormat, path: Path) -> tuple[str, str]:
    """The outcome of reading and using a file, and why where it failed."""
    try:
        with _within(MOST_S):
            numbers = list(_numbers(kind.use(path)))
    except (ShardscopeError, OSError) as error:
        line = one_line(error)
        sound = 0 < len(line) <= LONGEST_LINE
        return ("refused", "") if sound else ("failed", f"its complaint has {len(line)} characters")
    except TooSlow:
        return "failed", f"still at it after {MOST_S:g} s in {_innermost(sys.exc_info()[2])}"
    except MemoryError:
        return "failed", f"needs more than {MOST_BYTES >> 20} MiB in {_innermost(sys.exc_info()[2])}"
    except Exception as error:
        return "failed", f"{type(error).__name__}: {str(error)[:100]} in {_innermost(error.__traceback__)}"
    bad = [number for number in numbers if not math.isfinite(number) or number < 0]
    return ("failed", f"a report with {bad[0]}") if bad else ("accepted", "")


def _innermost(trace: Any) -> str:
    frames = [f for f in traceback.extract_tb(trace) if ROOT.name in f.filename or "simulator" in f.filename]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-4:-1])


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TooSlow in the body after so many seconds, where the platform has timers of signals."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of this process: others may keep the machine busy
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _limit_memory() -> None:
    """This process may have MOST_BYTES more than it has; a MemoryError otherwise."""
    try:
        import resource
    except ImportError:
        return
    formats()
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + MOST_BYTES, resource.RLIM_INFINITY))


def _dumped(value: Any, suffix: str) -> str:
    """As JSON, or as YAML where there is a way to write it; JSON is YAML, too."""
    try:
        if suffix == ".yaml":
            dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
            return str(yaml.dump(value, Dumper=dumper, allow_unicode=True, sort_keys=False))
    except UnicodeEncodeError:  # half a character, which JSON escapes
        pass
    return json.dumps(value)


def _numbers(value: object) -> Iterator[float]:
    """All numbers in a report, none of which may be negative or beyond 1e300."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _numbers(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value) if abs(value) < 1e300 else math.inf


if __name__ == "__main__":
    main()
