"""Large inputs that once took minutes or all memory. Usage: python -m benchmarks.speed.growth [--write]

Each piece of work runs in a process of its own, which says its processor seconds and the most memory it held; --write
puts the table into docs/performance.md, which `benchmarks.speed --write` makes anew without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks import ROOT
from benchmarks.pages.published import table

PAGE = ROOT / "docs" / "performance.md"
SECTION = re.compile(r"\n## Large inputs\n.*?<!-- end -->\n", re.DOTALL)
TEXT = """
## Large inputs

What once took minutes, or more memory than there is, each in a process of its own: processor seconds from its start on,
imports included, and the most memory it held. Written by `python -m benchmarks.speed.growth --write`.

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed.growth --write -->
{table}
<!-- end -->
"""


def contiguous(layers: int) -> None:
    """A pipeline's stages of a row of layers on 8 devices."""
    import partitioners
    from simulator.network.catalogue import read_cluster
    from simulator.plan import StepSettings
    from simulator.workload import Layer, Profile

    names = [f"layer{number}" for number in range(layers)]
    inputs = [(), *((before,) for before, _ in pairwise(names))]
    row = tuple(
        Layer(
            name=name, kind="linear", inputs=read, output_shape=(64, 1, 1), forward_s=1e-3 * (1 + i % 7),
            backward_s=2e-3 * (1 + i % 5), parameter_bytes=2**20, output_bytes=32 * 64 * 4,
        )
        for i, (name, read) in enumerate(zip(names, inputs, strict=True))
    )  # fmt: skip
    profile = Profile(model="row", device="none", batch_size=32, layers=row)
    cluster = read_cluster("dgx-h100", devices=8)
    partitioners.make_plan("pipeline", profile, cluster, StepSettings(batch_size=32, microbatches=8))


def routes(devices: int) -> None:
    """From every device to the next and to the one half the cluster away."""
    from simulator.network.catalogue import read_cluster

    cluster = read_cluster("dgx-h100", devices=devices)
    for device in range(devices):
        cluster.route(device, (device + 1) % devices)
        cluster.route(device, (device + devices // 2) % devices)


def simulated(*words: str) -> None:
    """A command, whose output nobody reads."""
    from simulator.cli import main

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = main(list(words))
    if code:
        raise SystemExit(code)


def compared(devices: int) -> None:
    """Every strategy for VGG-16."""
    simulated("compare", "vgg16_v100", "--cluster", "p3-16xlarge", "--devices", str(devices))


def served(servers: int) -> None:
    """ResNet-50, data parallel on four workers for each server."""
    machine = ("--cluster", "p3-16xlarge", "--devices", str(4 * servers), "--servers", str(servers), "--sync", "ps")
    simulated("simulate", "resnet50_v100", *machine, "--strategy", "data", "--json")


WORK: dict[str, tuple[Callable[[int], None], tuple[int, ...], str]] = {
    "pipeline stages of {:,} layers in a row, 8 devices": (contiguous, (1_000, 10_000), "70 s, 11 GB of 10,000"),
    "routes of {:,} devices, two from each": (routes, (1_024, 4_096, 16_384), ""),
    "parameter servers, {:,} of them, four workers each": (served, (16, 64), ""),
    "`compare` of all strategies, {:,} devices": (compared, (16, 64), "90 s of 64"),
}
"""By words: the work of a size, the sizes, and what it took before."""


def main() -> None:
    if sys.argv[1:2] == ["--of"]:
        WORK[sys.argv[2]][0](int(sys.argv[3]))
        _say_usage()
        return
    rows = []
    for words, (_, sizes, before) in WORK.items():
        for size in sizes:
            seconds, most_bytes = measured(words, size)
            cells = [words.format(size), before if size == sizes[-1] else "", f"{seconds:.1f} s"]
            rows.append([*cells, f"{most_bytes / 1e6:,.0f} MB"])
            print("  ".join(rows[-1]), flush=True)
    if "--write" in sys.argv[1:]:
        write(PAGE, table(["work", "before", "now", "memory"], rows))


def measured(words: str, size: int) -> tuple[float, int]:
    """Processor seconds of a piece of work in a process of its own, and the bytes it held at most."""
    command = [sys.executable, "-m", "benchmarks.speed.growth", "--of", words, str(size)]
    completed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    seconds, most_bytes = completed.stdout.split()
    return float(seconds), int(most_bytes)


def write(page: Path, rows: str) -> None:
    """Put the table into its section of the page, at the end where there is none."""
    text, section = page.read_text(encoding="utf-8"), TEXT.format(table=rows)
    page.write_text(SECTION.sub(lambda _: section, text) if SECTION.search(text) else text + section, encoding="utf-8")


def _say_usage() -> None:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in usages)
    print(seconds, max(each.ru_maxrss for each in usages) * 1024)


if __name__ == "__main__":
    main()
