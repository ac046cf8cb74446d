"""Closed forms that hold exactly, by group: python -m benchmarks.sharding_cases

Counts the cases of tests/sharding_cases.json and those that a test checks to the byte.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

CASES = Path(__file__).parents[1] / "tests" / "sharding_cases.json"
CHECKED = {
    "tensor": "blocks, sequence parallelism, grouped keys and values",
    "edge": "one tensor between two layers, all axes",
    "plans": "whole plans, random ones among them",
    "states": "ZeRO 0 to 3, plain and hybrid, bytes sent and held, tied embeddings",
    "experts": "dispatch and combine, by pair and once per device",
    "context": "gathered keys and values, Ulysses",
    "pipeline": "stage boundaries of copies and of sequence parts",
    "vocabulary": "embedding, head, cross entropy",
}


def main() -> None:
    """Print the table of docs/parallelisms.md."""
    cases = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    counts = Counter(case["group"] for case in cases)
    print("| group | cases | what is checked |\n| --- | ---: | --- |")
    for group, what in CHECKED.items():
        print(f"| {group} | {counts[group]} | {what} |")


if __name__ == "__main__":
    main()
