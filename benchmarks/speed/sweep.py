"""Points per second of a sweep, in processes and on Dask workers, and where the time goes.

Usage: python -m benchmarks.speed.sweep [POINTS] [PROFILE ...]     default: 10000 alexnet vgg16

The points are a sample, evenly spread, of every combination of data, pipeline and layerwise on 2 to 16 devices of two
clusters at many bandwidths. Nothing is asserted: times depend on the machine; the target is 10,000 points in minutes.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import partitioners
from simulator.sweep.engines import Dask, Engine, Processes
from simulator.sweep.evaluate import PointResult, SweepContext
from simulator.sweep.points import Points, expand
from simulator.sweep.results_table import stage_seconds
from simulator.sweep.specification import Specification
from simulator.sweep.sweeping import Pace, run_sweep

WORKERS = 2
STRATEGIES = ("data", "pipeline", "layerwise")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    points = sample(sys.argv[2:] or ["alexnet", "vgg16"], count)
    measure(points, f"{WORKERS} processes", partial(Processes, jobs=WORKERS))
    if importlib.util.find_spec("distributed"):
        measure(points, f"{WORKERS} Dask workers", partial(Dask, address=None, jobs=WORKERS))


def sample(profiles: Sequence[str], count: int) -> Points:
    """`count` points, evenly spread over the whole sweep."""
    written = Specification(
        parameters={
            "profile": profiles,
            "cluster": ["gcp-v100", "p3-16xlarge"],
            "strategy": STRATEGIES,
            "devices": [2, 4, 8, 16],
            "batch_size": 256,
            "microbatches": [1, 4, 16],
            "bucket_bytes": ["1MiB", "25MiB"],
            "inter_bandwidth_bytes_per_s": "1Gbps..100Gbps by x1.08",
        }
    )
    everything = expand(written, {name: tuple(partitioners.options(name)) for name in partitioners.strategies()})
    step = max(len(everything.points) / count, 1.0)
    spread = [everything.points[int(i * step)] for i in range(min(count, len(everything.points)))]
    return replace(everything, points=tuple(replace(point, number=n) for n, point in enumerate(spread)))


def measure(points: Points, where: str, start: Callable[[SweepContext], Engine]) -> None:
    """Run the sweep into a folder that is then thrown away, and print its rate and the stages' shares."""
    statuses: dict[str, int] = {}

    def watch(results: list[PointResult], pace: Pace) -> None:
        for result in results:
            statuses[result.status] = statuses.get(result.status, 0) + 1

    with tempfile.TemporaryDirectory() as folder:
        pace = run_sweep(points, partitioners.make_plan, Path(folder), start, watch)
        seconds = stage_seconds(Path(folder))
    each = ", ".join(f"{stage} {1e3 * part / pace.ran:.1f} ms" for stage, part in seconds.items())
    print(f"{where}: {pace.ran:,} points in {pace.wall_s:.1f} s, {pace.points_per_s:.1f} points/s; {statuses}")
    print(f"  each {each}")


if __name__ == "__main__":
    main()
