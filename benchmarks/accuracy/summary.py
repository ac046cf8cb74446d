"""The sources of docs/accuracy.md, a row each, from its data file. Usage: python -m benchmarks.accuracy.summary"""

from __future__ import annotations

import json

from benchmarks.accuracy.__main__ import PACKED
from benchmarks.pages.published import table

HEADS = ("measured by others", "steps", "refused", "median error", "bias", "worst", "in interval")


def rows() -> list[tuple[str, ...]]:
    """Of every source with steps that count."""
    return [
        (
            each["title"], str(each["steps"]), str(each["failed"]), f"{each['median']:.1%}", f"{each['bias']:+.1%}",
            f"{each['worst']:+.1%}", "-" if each["inside"] is None else f"{each['inside']:.0%}",
        )
        for each in json.loads(PACKED.read_text(encoding="utf-8"))
        if each["steps"]
    ]  # fmt: skip


if __name__ == "__main__":
    print(table(HEADS, rows()))
