"""The measured collectives of the presets, as their files hold them. Usage: python -m benchmarks.collective_curves

Prints the `collectives` of `simulator/network/presets`, to be pasted there. Needs SHARDSCOPE_DATA and pyarrow.
Sizes are of the whole tensor (`simulator.collectives.exchange`). Every fourth power of two is kept, and no time that a
larger size undercuts: some of the logs jump by a multiple from one size to the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from math import log2
from pathlib import Path
from typing import Any

from benchmarks.link_shares import LEAST_BYTES, MIB, aceso_all_reduces
from benchmarks.published import shared_data
from simulator.curve import Curve
from traces.imports.nccl_tests import read_nccl_log

Curves = Mapping[str, Mapping[int, Curve]]
SMALLEST_BYTES, LARGEST_BYTES = 1024, 2**32
PARQUET = {"a100": "a100_sxm_nccl2.27.3.parquet", "h100": "h100_sxm_nccl2.29.2.parquet"}
CHART = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}


def dgx_a100() -> Curves:
    """All-reduces on 2 to 128 A100-40 of Azure ND A100 v4, the other collectives on 2 to 8 A100-80."""
    logs = [read_nccl_log(shared_data() / "nccl" / f"nccl_{count}.log") for count in (2, 4, 8, 16, 32, 64, 128)]
    others = {name: curves for name, curves in _parquet("a100").items() if name != "all_reduce"}
    return {"all_reduce": {log.devices: _thinned(log.curve.points) for log in logs}, **others}


def dgx_h100() -> Curves:
    """Collectives on 2 to 8 H100 by size; on 16 to 512 by their mean bus bandwidth, which is not by size."""
    between = _by_nodes()
    return {name: {**curves, **between.get(name, {})} for name, curves in _parquet("h100").items()}


def p3_16xlarge() -> Curves:
    """All-reduces on 2 to 8 V100 of Azure NDv2, whose NVLinks are the same hybrid cube mesh."""
    return {"all_reduce": {count: _thinned(aceso_all_reduces(count)) for count in (2, 4, 8)}}


CURVES: Mapping[str, Callable[[], Curves]] = {
    "dgx-a100": dgx_a100,
    "dgx-h100": dgx_h100,
    "p3-16xlarge": p3_16xlarge,
}
"""By preset."""


def _parquet(card: str) -> Curves:
    """Of tensors of 16-bit numbers. `message_size` counts elements of the tensor, of an all-to-all of one device's."""
    rows = rows_of(shared_data() / "nccl" / PARQUET[card])
    points: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        if row["nccl_dtype"] == "half":
            name, count = row["op_name"].replace("alltoall", "all_to_all"), row["num_gpus"]
            size = 2.0 * row["message_size"] * (count if name == "all_to_all" else 1)
            points.setdefault(name, {}).setdefault(count, []).append((size, row["latency"] / 1e3))
    return {name: {count: _thinned(sorted(of)) for count, of in by_count.items()} for name, by_count in points.items()}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet file. Raises ModuleNotFoundError without pyarrow."""
    from pyarrow.parquet import read_table  # type: ignore[import-not-found, import-untyped, unused-ignore]

    rows: list[dict[str, Any]] = read_table(path).to_pylist()
    return rows


def _by_nodes() -> Curves:
    """From a mean bus bandwidth by nodes of 8: in proportion to the size, as its source has no sizes."""
    charts = json.loads((shared_data() / "ultrascale" / "charts.json").read_text(encoding="utf-8"))
    curves: dict[str, dict[int, Curve]] = {}
    for trace in charts["pp_comm_bandwidth.html"]["traces"]:
        if trace["name"] in CHART:
            passes = 2 if trace["name"] == "AllReduce" else 1
            for exponent, gigabytes in zip(trace["x"][1:], trace["y"][1:], strict=True):
                count = 8 * 2**exponent
                s_per_byte = passes * (count - 1) / count / (gigabytes * 1e9)
                points = tuple((float(size), size * s_per_byte) for size in (LEAST_BYTES, 1024 * MIB))
                curves.setdefault(CHART[trace["name"]], {})[count] = Curve(points=points)
    return curves


def _thinned(points: Iterable[tuple[float, float]]) -> Curve:
    points, least_s, kept = list(points), float("inf"), []
    for size, seconds in reversed(points):
        if seconds < least_s:
            least_s = seconds
            at_a_fourth = log2(size) % 2 == 0 or size in (points[0][0], points[-1][0])
            if SMALLEST_BYTES <= size <= LARGEST_BYTES and at_a_fourth:
                kept.append((size, seconds))
    return Curve(points=tuple(reversed(kept)))


def block(curves: Curves) -> str:
    """The lines of a preset's file; times to four digits."""
    lines = ["collectives:"]
    for name, by_count in curves.items():
        lines.append(f"  {name}:")
        for count, curve in sorted(by_count.items()):
            points = ", ".join(f"[{size:.0f}, {seconds:.3e}]" for size, seconds in curve.points)
            lines.append(f"    {count}: {{points: [{points}]}}")
    return "\n".join(lines)


def main() -> None:
    for preset, curves in CURVES.items():
        print(f"# {preset}\n{block(curves())}")


if __name__ == "__main__":
    main()
