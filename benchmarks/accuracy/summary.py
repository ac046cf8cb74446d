"""The sets of docs/accuracy.md, a row each. Usage: python -m benchmarks.accuracy.summary [--pack]

--pack writes them, with the steps that the page lists, to where the dashboard's Validate reads them.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from benchmarks.accuracy.__main__ import PAGE
from benchmarks.published import table
from simulator.files import write_text_atomic

PACKED = PAGE.parent.parent / "dashboard" / "published.json"
SECTION = re.compile(r"^## (?P<title>[^\n]*)$(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FIGURES = re.compile(r"(\d+) steps; mean absolute error ([^;]+); bias ([^;]+); worst ([^;]+);")
STEP = re.compile(r"^\| ([^|\n]+) \| ([\d,.]+) \| ([\d,.]+) \| [+-][\d.]+% \| ([^|\n]*)\|$", re.MULTILINE)


def rows() -> list[tuple[str, ...]]:
    """(set, steps, mean absolute error, bias, worst) of every section that counts steps."""
    return [(section["title"], *figures.groups()) for section, figures in _counted()]


def packed() -> str:
    """The same as JSON, each set with the steps that its section lists before its figures."""
    sets: list[dict[str, Any]] = []
    for section, figures in _counted():
        steps, *ratios = figures.groups()
        named = zip(("mean_absolute_error", "bias", "worst"), ratios, strict=True)
        values = {name: round(float(text.rstrip("%")) / 100, 6) for name, text in named}
        listed = [_step(step) for step in STEP.finditer(section["text"][: figures.start()])]
        sets.append({"title": section["title"], "steps": int(steps), **values, "rows": listed})
    return json.dumps(sets, indent=1) + "\n"


def _counted() -> list[tuple[re.Match[str], re.Match[str]]]:
    """Every section that counts steps, and where it does so first."""
    text = PAGE.read_text(encoding="utf-8")
    pairs = ((section, FIGURES.search(section["text"])) for section in SECTION.finditer(text))
    return [(section, figures) for section, figures in pairs if figures]


def _step(row: re.Match[str]) -> dict[str, Any]:
    name, predicted, measured, note = (part.strip() for part in row.groups())
    seconds = [round(float(number.replace(",", "")) / 1e3, 7) for number in (predicted, measured)]
    return {"name": name, "predicted_s": seconds[0], "measured_s": seconds[1], "note": note}


if __name__ == "__main__":
    if "--pack" in sys.argv[1:]:
        write_text_atomic(PACKED, packed())
    else:
        print(table(("measured by others", "steps", "mean absolute error", "bias", "worst"), rows()))
