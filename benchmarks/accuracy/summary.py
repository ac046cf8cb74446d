"""The sets of docs/accuracy.md, a row each. Usage: python -m benchmarks.accuracy.summary"""

from __future__ import annotations

import re

from benchmarks.accuracy.__main__ import PAGE
from benchmarks.published import table

SECTION = re.compile(r"^## (?P<title>[^\n]*)$(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FIGURES = re.compile(r"(\d+) steps; mean absolute error ([^;]+); bias ([^;]+); worst ([^;]+);")


def rows() -> list[tuple[str, ...]]:
    """(set, steps, mean absolute error, bias, worst) of every section that counts steps."""
    text = PAGE.read_text(encoding="utf-8")
    return [
        (section["title"], *figures.groups())
        for section in SECTION.finditer(text)
        if (figures := FIGURES.search(section["text"]))
    ]


if __name__ == "__main__":
    print(table(("measured by others", "steps", "mean absolute error", "bias", "worst"), rows()))
