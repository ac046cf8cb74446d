"""Predict every published run through the product.

    python -m benchmarks.accuracy [--write [--accept NAME]] [NAME ...]

Prints the sections of docs/accuracy.md, or those of some sources; needs SHARDSCOPE_DATA. --write puts them there, and
all runs into the data file that the dashboard reads; it refuses where the median error of a source has grown by a
fifth, but for sources to --accept.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.accuracy._source import Source
from simulator.files import write_text_atomic

SOURCES = (
    *("neusight", "sailor", "ddp_buckets", "bytedance"),
    *("ultrascale", "llm_foundry", "megatron_a100", "dgxc", "torchtitan", "megatron_golden"),
)
SLOW = ("megatron_a100",)
"""Sources that take minutes."""
ROOT = Path(__file__).resolve().parent.parent.parent
PAGE, PACKED = ROOT / "docs" / "accuracy.md", ROOT / "dashboard" / "published.json"
GROWTH, LEAST = 1.2, 0.002
"""By how much a median error may grow unnoticed: as a ratio, and at least as a difference."""
INTRODUCTION = """# Accuracy on real GPUs

Runs that others measured and published, each predicted by the command that a user types for it; nothing computes a
step but the simulator. `python -m benchmarks.accuracy` makes this page from the published measurements
(`SHARDSCOPE_DATA`); all runs, listed here or not, stand in [published.json](../dashboard/published.json). An error is
predicted over measured, less 1; a run that the product refuses counts as -100 %. *Rank* is Spearman's correlation over
plans of one network on one machine, *regret* how much longer the plan takes that is predicted best than the best one
(mean and worst). *In interval* is the share of steps inside the printed interval of 9 in 10, and its high over low.
*Wrongly too large* are runs that ran and are said not to fit. *Plainest* is the median error of arithmetic over the
GPUs' peak, with one factor fitted to the very runs."""
MARK = "<!-- slow: it needs the published measurements -->\n<!-- output: python -m benchmarks.accuracy -->"
"""How the page says what makes it (`benchmarks.pasted`)."""


def source(name: str) -> Source:
    """A source, predicted."""
    made: Source = import_module(f"benchmarks.accuracy.{name}").source()
    return made


def page(sources: dict[str, Source]) -> str:
    """The whole page in Markdown."""
    return f"{INTRODUCTION}\n\n{MARK}\n{sections(sources)}\n<!-- end -->\n"


def sections(sources: dict[str, Source]) -> str:
    return "\n\n".join(each.section() for each in sources.values())


def packed(sources: dict[str, Source]) -> str:
    """The data file."""
    return json.dumps([{"name": name, **each.packed()} for name, each in sources.items()], indent=1) + "\n"


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
    sources = {name: source(name) for name in args.names or SOURCES}
    if not args.write:
        print(sections(sources))
        return
    before = json.loads(PACKED.read_text(encoding="utf-8"))
    worse = [line for line in grown(before, sources) if line.partition(":")[0] not in args.accept]
    if worse:
        raise SystemExit("median errors have grown (--accept NAME): " + "; ".join(worse))
    write_text_atomic(PAGE, page(sources))
    write_text_atomic(PACKED, packed(sources))


if __name__ == "__main__":
    main()
