"""Write docs/reproductions.md: our numbers beside the published ones. Usage: python -m benchmarks.reproductions

Takes some minutes on two cores. Needs the published measurements (SHARDSCOPE_DATA).
"""

from __future__ import annotations

import platform
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

SECTIONS = ("hypergraph", "optcnn", "contiguous", "holdout", "unequal", "convergence")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "reproductions.md"


def main() -> None:
    parts = [
        "# Reproductions",
        "Our numbers beside published ones, from `python -m benchmarks.reproductions`. Where they differ, the text "
        "says why as far as we know.",
    ]
    for name in SECTIONS:
        began = time.perf_counter()
        parts.append(import_module(f"benchmarks.{name}").section())
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    made = f"Made {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()}."
    PAGE.write_text("\n\n".join([*parts, made]) + "\n")


if __name__ == "__main__":
    main()
