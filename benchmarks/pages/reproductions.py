"""Print a section of docs/reproductions.md: our numbers beside the published ones.

Usage: python -m benchmarks.pages.reproductions SECTION. All need the published measurements (SHARDSCOPE_DATA);
`hypergraph` takes some minutes, `hypergraph_steps` six of both cores and `iopddl` eight. `python -m
benchmarks.pages.pasted` puts them into the page.
"""

from __future__ import annotations

import argparse
from importlib import import_module

SECTIONS = ("hypergraph", "hypergraph_steps", "optcnn", "contiguous", "holdout", "iopddl")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a section of docs/reproductions.md.")
    parser.add_argument("section", choices=SECTIONS)
    print(import_module(f"benchmarks.{parser.parse_args().section}").section())


if __name__ == "__main__":
    main()
