"""Whether one calibration of a cluster says what the next does: the same command several times, compared pair by pair.

    sudo python -m benchmarks.machines.repeated_calibrations cpu-1g --devices 2 --up-to 38MB -o out/calibrations
    python -m benchmarks.machines.repeated_calibrations -o out/calibrations              the table of what is there

Two calibrations agree about a figure when they differ by no more than either of them says its passes did, 10 % where
that was less.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from benchmarks.pages.published import table
from simulator.network.catalogue import read_cluster, read_runtime
from simulator.units import format_time
from traces.calibrate.median_calibration import STEADY, figures

_UNCERTAIN = "uncertain, as passes differ: "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", nargs="?", help="of CPUs, as `shardscope calibrate` takes it")
    parser.add_argument("--devices", default="2")
    parser.add_argument("--up-to", default="38MB")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--rest", type=float, default=240.0, metavar="SECONDS", help="between two calibrations")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_args()
    if args.cluster:
        args.output.mkdir(parents=True, exist_ok=True)
        calibrate = [sys.executable, "-m", "shardscope", "calibrate", args.cluster]
        for number in range(args.times):
            time.sleep(args.rest if number else 0.0)
            output = str(args.output / f"{number + 1}.yaml")
            sizes = ["--devices", args.devices, "--up-to", args.up_to]
            subprocess.run([*calibrate, *sizes, "-o", output], check=True)
    print(agreement(sorted(args.output.glob("*.yaml"))))


def agreement(paths: Sequence[Path]) -> str:
    """A table: of each figure its least, median and most over the calibrations, and how many pairs of them agree."""
    calibrations = [(read_cluster(path), read_runtime(path)) for path in paths]
    bands = [stated_ranges(cluster.sources) for cluster, _ in calibrations]
    rows, agreeing, everywhere = [], 0, 0
    for name, values in figures(calibrations).items():
        middle = statistics.median(values)
        pairs = list(combinations(range(len(values)), 2))
        agree = [
            abs(values[a] - values[b]) <= middle * max(STEADY, bands[a].get(name, 0.0), bands[b].get(name, 0.0))
            for a, b in pairs
        ]
        agreeing, everywhere = agreeing + sum(agree), everywhere + all(agree)
        seconds = [format_time(value) for value in (min(values), middle, max(values))]
        stated = max(max(STEADY, band.get(name, 0.0)) for band in bands)
        rows.append([name, *seconds, f"{stated:.0%}", f"{sum(agree)} of {len(pairs)}"])
    count = len(rows)
    total = sum(len(list(combinations(calibrations, 2))) for _ in rows)
    rows.append([f"**all, {everywhere} of {count} in every pair**", "", "", "", "", f"**{agreeing} of {total}**"])
    heads = ["figure", "least", "median", "most", "widest own band", "pairs that agree"]
    return table(heads, rows)


def stated_ranges(sources: Sequence[str]) -> dict[str, float]:
    """By figure, the share by which a calibration says that its passes differ, of those above STEADY."""
    notes = [source for source in sources if source.startswith(_UNCERTAIN)]
    by_note = (note.removeprefix(_UNCERTAIN).split(";")[0].split(", ") for note in notes)
    matches = (re.fullmatch(r"(.+) by (\d+)%", each) for ranges in by_note for each in ranges)
    return {match[1]: int(match[2]) / 100 for match in matches if match}


if __name__ == "__main__":
    main()
