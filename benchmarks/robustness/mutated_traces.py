"""Damages sound trace files of every format and imports them: no traceback, no hang, no flood of memory.

    python -m benchmarks.robustness.mutated_traces --count 10000
    python -m benchmarks.robustness.mutated_traces --first 4711 --count 1 --format kineto    # one of them again

Every file is read in a process of its own, which has LONGEST_S of processor time and MOST_BYTES. It may be refused, in
one line, or become a profile that can be written. Each number damages the same file alike. Needs SHARDSCOPE_DATA for
the published files; drawn traces and written tables stand in for their own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.pages.published import shared_data
from benchmarks.robustness.drawn_traces import Drawing, drawn
from benchmarks.robustness.mutations import NUMBER, mutated_bytes, mutated_json, mutated_table, mutated_text
from simulator import files
from simulator.errors import ShardscopeError
from traces.imports._imported import ImportOptions
from traces.imports._registry import formats, import_files
from traces.imports.table import CELLS

LONGEST_S, MOST_BYTES, LONGEST_MESSAGE = 20, 2_000_000_000, 700
JSON = None
"""In place of a separator of cells."""


@dataclass(frozen=True)
class SoundFiles:
    """Files of one measurement, by their place in a folder; `read` are named to the importer, in this order.

    weight: how often they are taken; separator: of cells, or JSON.
    """

    format: str
    files: Mapping[str, bytes]
    read: Sequence[str]
    options: ImportOptions
    separator: str | None = JSON
    weight: float = 1.0
    values: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def packed(self) -> frozenset[str]:
        return frozenset(name for name, content in self.files.items() if content[:2] == b"\x1f\x8b")

    def text(self, name: str) -> str:
        content = self.files[name]
        return (gzip.decompress(content) if name in self.packed else content).decode()

    def damaged(self, random: Random) -> tuple[dict[str, bytes], list[str]]:
        """(all files, those to read): one of them damaged, or named otherwise."""
        name = random.choice(list(self.files)) if random.random() < 0.3 else random.choice(list(self.read))
        content, kind = self.files[name], random.random()
        if kind < 0.08:
            renamed = NUMBER.sub(lambda match: random.choice(("0", "", "9" * 9, match.group())), name)
            contents = {(renamed if each == name else each): data for each, data in self.files.items()}
            return contents, [renamed if each == name else each for each in self.read]
        if kind < 0.18:
            content = mutated_bytes(content, random)
        else:
            text = self._damaged_text(name, random).encode("utf-8", errors="surrogatepass")
            content = gzip.compress(text, 1) if name in self.packed and random.random() < 0.5 else text
        return {**self.files, name: content}, list(self.read)

    def _damaged_text(self, name: str, random: Random) -> str:
        if random.random() < 0.15:
            return mutated_text(self.text(name), random)
        if self.separator is not JSON and not name.endswith(".json"):
            return mutated_table(self.text(name), random, self.separator)
        if name not in self.values:
            self.values[name] = json.loads(self.text(name))
        return json.dumps(mutated_json(self.values[name], random))


def sound_files() -> list[SoundFiles]:
    """Of every format, or only those drawn here where the published measurements are absent."""
    own = [_drawn(1), _drawn(2), _ranks(), _tables()]
    try:
        data = shared_data()
    except FileNotFoundError:
        return own
    return [*own, *_published(data)]


TINY = ImportOptions(
    model="benchmarks.robustness.drawn_traces:tiny_network",
    input_shape=(8,),
    batch_sizes=(4,),
    dtype="float32",
    force=True,
)


def _drawn(steps: int) -> SoundFiles:
    with tempfile.TemporaryDirectory() as folder:
        content = drawn(Path(folder) / "t.json", steps).read_bytes()
    return SoundFiles("kineto", {"t.json": content}, ["t.json"], TINY, weight=3)


def _ranks() -> SoundFiles:
    """Two ranks that sum gradients."""
    contents = {}
    for rank in range(2):
        drawing = Drawing()
        drawing.step(0)
        for name, elements in (("ncclKernel_AllReduce_RING", 1000), ("ncclDevKernel_Generic(x)", 8000)):
            about = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "Float", "Group size": 2}
            drawing.event("kernel", name, 300, 400, 20, {"correlation": 90 + rank, "External id": 0, **about})
        with tempfile.TemporaryDirectory() as folder:
            more = {"distributedInfo": {"rank": rank, "world_size": 2, "nccl_version": "2.20"}}
            contents[f"{rank}.json"] = drawing.write(Path(folder) / "t.json", **more).read_bytes()
    return SoundFiles("kineto", contents, list(contents), TINY, weight=2)


_TABLE = "\n".join(
    (
        ",".join(CELLS),
        "conv,conv2d,-,4x8x8,1.2ms,2.5ms,0,1kB,,8192,1e6,,3x3,1x1,1x1,1x1,1",
        "relu,relu,conv,4x8x8,1e-4,1e-4,,,8192,0,,,1,,,,",
        "head,linear,conv;relu,10,0.8ms,1.6ms,5us,2.1MB,,,,conv,,,,,",
    )
).encode()


def _tables() -> SoundFiles:
    """Two tables of the same three layers, with every column that one may have."""
    return SoundFiles(
        "table", dict.fromkeys(("a.csv", "b.csv"), _TABLE), ["a.csv", "b.csv"], ImportOptions(batch_sizes=(8, 4)), ","
    )


def _published(data: Path) -> list[SoundFiles]:
    resnet18 = ImportOptions(model="resnet18", force=True)
    return [
        _of(data, "kineto", ["kineto/resnet18-mi300x-step.json.gz"], resnet18, weight=0.1),
        _of(data, "pipedream", ["pipedream/alexnet.txt"], ImportOptions(batch_sizes=(256,)), separator=", "),
        _of(data, "nccl_tests", ["nccl/nccl_2.log", "nccl/nccl_8.log"], ImportOptions(), separator="  "),
    ]


def _of(
    data: Path,
    name: str,
    read: Sequence[str],
    options: ImportOptions,
    *,
    separator: str | None = JSON,
    weight: float = 1.0,
) -> SoundFiles:
    contents = {path: (data / path).read_bytes() for path in read}
    return SoundFiles(name, contents, read, options, separator, weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a damaged file: "imported", "refused" or a fault in words; seconds of processor time."""

    outcome: str
    seconds: float
    most_bytes: int

    @property
    def is_fault(self) -> bool:
        return self.outcome not in ("imported", "refused")


def attempt(sound: SoundFiles, contents: Mapping[str, bytes], read: Sequence[str], folder: Path) -> str:
    """Import files from `folder`: "imported", or "refused" in one line.

    Raises what the importer should not have raised, ValueError for a message of several lines.
    """
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        imported = import_files([folder / name for name in read], sound.options)
        if imported.profile is not None:
            files.write_profile(imported.profile, folder / "imported.json")
            files.read_profile(str(folder / "imported.json"))
        return "imported"
    except (ShardscopeError, OSError) as error:
        message = str(error)
        if "\n" in message or len(message) > LONGEST_MESSAGE + 2 * len(str(folder)):
            raise ValueError(f"a message of {len(message)} letters: {message[:200]!r}") from error
        return "refused"


def judged(sound: SoundFiles, number: int, longest_s: float = LONGEST_S) -> Verdict:
    """`attempt` in a process of its own, so that neither a hang nor a flood reaches this one."""
    with tempfile.TemporaryDirectory() as folder:
        reading, writing = os.pipe()
        held_bytes = _memory_bytes()[1]  # the child has as much from its beginning
        child = os.fork()
        if child == 0:
            os.close(reading)
            _report(writing, lambda: attempt(sound, *sound.damaged(Random(number)), Path(folder)), longest_s)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            outcome = stream.read().decode(errors="replace")
        _, status, usage = os.wait4(child, 0)
    seconds, most_bytes = usage.ru_utime + usage.ru_stime, max(0, usage.ru_maxrss * 1024 - held_bytes)
    if os.WIFSIGNALED(status):
        outcome = f"no answer after {seconds:.0f} s" if os.WTERMSIG(status) == signal.SIGPROF else f"signal {status}"
    elif most_bytes > MOST_BYTES:
        outcome = f"{most_bytes / 1e9:.1f} GB of memory"
    return Verdict(outcome=outcome, seconds=seconds, most_bytes=most_bytes)


def _memory_bytes() -> tuple[int, int]:
    """(address space, resident memory that a fork hands on: no pages of files) of this process."""
    size, resident, shared = (int(field) for field in Path("/proc/self/statm").read_text().split()[:3])
    return size * resource.getpagesize(), (resident - shared) * resource.getpagesize()


def _report(writing: int, work: Callable[[], str], longest_s: float) -> None:
    """In the child: write what `work` answers, or its traceback, and end."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, longest_s)
    most_bytes = _memory_bytes()[0] + 8 * MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    warnings.simplefilter("error")
    try:
        outcome = work()
    except BaseException:
        outcome = "".join(traceback.format_exc())[-1500:]
    os.write(writing, outcome.encode(errors="replace"))
    os._exit(0)


def chosen_sound(sounds: Sequence[SoundFiles], number: int) -> SoundFiles:
    """Which of the sound files a number damages."""
    return Random(f"file {number}").choices(sounds, [sound.weight for sound in sounds])[0]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robustness.mutated_traces")
    parser.add_argument("--count", type=int, default=10_000, help="how many files (default 10,000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default 0)")
    parser.add_argument("--format", choices=formats(), help="of this format alone")
    args = parser.parse_args(argv)
    sounds = [sound for sound in sound_files() if args.format in (None, sound.format)]
    for sound in sounds:  # once in this process, so that each child has what it needs imported
        with tempfile.TemporaryDirectory() as folder:
            if attempt(sound, sound.files, sound.read, Path(folder)) != "imported":
                raise ValueError(f"{sound.format}: the sound files were refused")
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    for number in range(args.first, args.first + args.count):
        sound = chosen_sound(sounds, number)
        verdict = judged(sound, number)
        verdicts[sound.format].append(verdict)
        if verdict.is_fault:
            print(f"{sound.format} {number}: {verdict.outcome}", file=sys.stderr, flush=True)
    print("| format | files | refused | imported | faults | longest s | most MB |\n|" + " --- |" * 7)
    for name, of_format in sorted(verdicts.items()):
        tally = [sum(each.outcome == outcome for each in of_format) for outcome in ("refused", "imported")]
        faults = sum(each.is_fault for each in of_format)
        longest, most = max(each.seconds for each in of_format), max(each.most_bytes for each in of_format)
        print(f"| {name} | {len(of_format)} | {tally[0]} | {tally[1]} | {faults} | {longest:.1f} | {most / 1e6:.0f} |")
    return int(any(each.is_fault for of_format in verdicts.values() for each in of_format))


if __name__ == "__main__":
    sys.exit(main())
