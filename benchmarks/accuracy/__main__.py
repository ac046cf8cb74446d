"""Predict every published run through the product.

    python -m benchmarks.accuracy [--write [--accept NAME]] [NAME ...]

Prints the sections of docs/accuracy.md, or those of some sources; needs SHARDSCOPE_DATA. --write puts them there, and
all runs into the data file that the dashboard reads; it refuses where the median error of a source has grown by a
fifth, but for sources to --accept.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any

from benchmarks import ROOT
from benchmarks.accuracy._bands import evidence, with_intervals
from benchmarks.accuracy._source import Source, rounded, unpacked
from benchmarks.accuracy._steps import Figures
from benchmarks.pages.published import table
from simulator.files import write_text_atomic
from simulator.report.evidence import WORDS

SOURCES = (
    *("neusight", "nvidia_mxnet", "nvidia_tensorflow", "nvidia_pytorch", "sailor", "ddp_buckets", "bytedance"),
    *(
        "ultrascale",
        "llm_foundry",
        "mosaicml",
        "megatron_a100",
        "dgxc",
        "torchtitan",
        "bloom",
        "dlperf",
        "primus",
        "internevo",
        "simumax",
        "nemo",
        "mlperf",
        "google_cloud",
        "automodel",
        "unnamed",
        "megatron_golden",
    ),
)
SLOW = ("megatron_a100", "bloom")
"""Sources that take minutes."""
PAGE, PACKED = ROOT / "docs" / "accuracy.md", ROOT / "dashboard" / "published.json"
EVIDENCE_FILE = ROOT / "simulator" / "report" / "evidence.json"
GROWTH, LEAST = 1.2, 0.002
"""By how much a median error may grow unnoticed: as a ratio, and at least as a difference."""
INTRODUCTION = """# Accuracy on real GPUs

Runs that others measured and published, each predicted by the command that a user types for it; nothing computes a
step but the simulator. `python -m benchmarks.accuracy` makes this page from the published measurements
(`SHARDSCOPE_DATA`); all runs, listed here or not, stand in `dashboard/published.json`. An error is
predicted over measured, less 1; a run that the product refuses counts as -100 %. *Rank* is Spearman's correlation over
plans of one network on one machine, *regret* how much longer the plan takes that is predicted best than the best one
(mean and worst). *In interval* is the share of steps inside the printed interval of 9 in 10, and its high over low.
*Wrongly too large* are runs that ran and are said not to fit. *Plainest* is the median error of arithmetic over the
GPUs' peak, with one factor fitted to the very runs."""
EVIDENCE = """## What a prediction stands on

Every command prints the kind of its prediction and an interval for it. *Held* is the share of steps inside the
intervals that all *other* sources give them, and the median of their high over low."""
MARK = "<!-- slow: it needs the published measurements -->\n<!-- output: python -m benchmarks.accuracy -->"
"""How the page says what makes it (`benchmarks.pages.pasted`)."""


def source(name: str) -> Source:
    """A source, predicted; its intervals are those that all others give it, as the data file has them."""
    made = _predicted(name)
    every = {**{other: unpacked(each) for other, each in _kept().items()}, name: made.steps}
    return replace(made, steps=with_intervals(name, every))


def _predicted(name: str) -> Source:
    made: Source = import_module(f"benchmarks.accuracy.{name}").source()
    return replace(made, steps=[rounded(step) for step in made.steps])


def all_sources() -> dict[str, Source]:
    """Every source, predicted, with the intervals that all others give it."""
    with ProcessPoolExecutor() as pool:
        made = dict(zip(SOURCES, pool.map(_predicted, SOURCES), strict=True))
    every = {name: each.steps for name, each in made.items()}
    return {name: replace(each, steps=with_intervals(name, every)) for name, each in made.items()}


def _kept() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(PACKED.read_text(encoding="utf-8"))}


def page(sources: dict[str, Source]) -> str:
    """The whole page in Markdown."""
    return f"{INTRODUCTION}\n\n{MARK}\n{evidence_section(sources)}\n\n{sections(sources)}\n<!-- end -->\n"


def sections(sources: dict[str, Source]) -> str:
    return "\n\n".join(each.section() for each in sources.values())


def evidence_section(sources: dict[str, Source]) -> str:
    """How far predictions of each kind are off, and what intervals made of other sources hold."""
    rows = []
    for each in evidence({name: made.steps for name, made in sources.items()}):
        figures = Figures.of(step for made in sources.values() for step in made.steps if step.kind == each.kind)
        low, high = f"{each.low - 1:+.0%}", f"{each.high - 1:+.0%}"
        held = f"{figures.inside:.0%} of {figures.width:.2f}"
        rows.append([WORDS[each.kind], each.sources, each.steps, f"{each.median:.1%}", f"{low} to {high}", held])
    heads = ["a prediction stands on", "sources", "steps", "median error", "9 in 10 of a further source", "held"]
    return f"{EVIDENCE}\n\n{table(heads, rows)}"


def packed(sources: dict[str, Source]) -> str:
    """The data file."""
    return json.dumps([{"name": name, **each.packed()} for name, each in sources.items()], indent=1) + "\n"


def packed_evidence(sources: dict[str, Source]) -> str:
    """What the product says of its predictions, from what the data file has of them."""
    counted = evidence({name: unpacked(made.packed()) for name, made in sources.items()})
    return json.dumps([asdict(each) for each in counted], indent=1) + "\n"


def grown(before: list[dict[str, Any]], sources: dict[str, Source]) -> list[str]:
    """Of which sources the median error has grown, with both."""
    known = {each["name"]: each["median"] for each in before if "name" in each}
    pairs = [(name, known.get(name), each.figures.median) for name, each in sources.items()]
    return [
        f"{name}: {was:.1%} before, {now:.1%} now"
        for name, was, now in pairs
        if was is not None and now > max(was * GROWTH, was + LEAST)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=str(__doc__).partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*SOURCES, []], metavar="NAME")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--accept", action="append", default=[], choices=SOURCES)
    args = parser.parse_args()
    if not args.write:
        print(sections({name: source(name) for name in args.names or SOURCES}))
        return
    sources = all_sources()
    before = json.loads(PACKED.read_text(encoding="utf-8"))
    worse = [line for line in grown(before, sources) if line.partition(":")[0] not in args.accept]
    if worse:
        raise SystemExit("median errors have grown (--accept NAME): " + "; ".join(worse))
    write_text_atomic(PAGE, page(sources))
    write_text_atomic(PACKED, packed(sources))
    write_text_atomic(EVIDENCE_FILE, packed_evidence(sources))


if __name__ == "__main__":
    main()
