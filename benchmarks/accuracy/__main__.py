"""Write docs/accuracy.md. Usage: python -m benchmarks.accuracy [PAGE]      (needs SHARDSCOPE_DATA)"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from simulator.files import write_text_atomic

SECTIONS = ("neusight", "sailor", "ddp_buckets", "bytedance")
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "accuracy.md"
INTRODUCTION = """# Accuracy on real GPUs

Steps that others measured and published, beside what the simulator says of them; from `python -m benchmarks.accuracy`,
which needs the published measurements (`SHARDSCOPE_DATA`). Nothing is fitted to what is predicted: layer times, network
and software come from other measurements, which each section names. An error is predicted over measured, less 1; a
noise floor is how far the measurements differ among themselves."""


def page() -> str:
    """The whole page in Markdown."""
    sections = [import_module(f"benchmarks.accuracy.{name}").section() for name in SECTIONS]
    return "\n\n".join([INTRODUCTION, *sections]) + "\n"


if __name__ == "__main__":
    write_text_atomic(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE, page())
