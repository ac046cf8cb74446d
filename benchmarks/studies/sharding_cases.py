"""Closed forms of tests/sharding_cases.json, by group: python -m benchmarks.studies.sharding_cases

What of each group a test holds to the byte, and which of its numbers none does yet.
"""

from __future__ import annotations

import json
from collections import Counter

from benchmarks import ROOT

CASES = ROOT / "tests" / "sharding_cases.json"
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tensor": ("blocks, sequence parallelism, inputs received again, grouped keys and values", ()),
    "edge": ("one tensor between two layers, all axes", ()),
    "plans": ("whole plans, random ones among them", ()),
    "states": (
        "ZeRO 0 to 3, plain and hybrid, bytes sent and held, tied embeddings summed at once",
        ("in_turn_bytes",),
    ),
    "experts": ("dispatch and combine, by pair and once per device", ()),
    "context": ("keys and values gathered once and twice (the bytes of a ring), Ulysses", ()),
    "pipeline": ("stage boundaries of copies, whole and scattered, and of sequence parts", ()),
    "vocabulary": ("embedding, head, cross entropy", ()),
    "activations": ("bytes kept by a block, closed forms of transformers (not the tasks' memory events)", ()),
}
"""By group, what is checked, and expected numbers that no test reads."""


def main() -> None:
    """Print the table of docs/parallelisms.md."""
    cases = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    counts = Counter(case["group"] for case in cases)
    print("| group | cases | what is checked | not held |\n| --- | ---: | --- | --- |")
    for group, (what, missing) in GROUPS.items():
        print(f"| {group} | {counts[group]} | {what} | {', '.join(f'`{name}`' for name in missing) or '-'} |")


if __name__ == "__main__":
    main()
