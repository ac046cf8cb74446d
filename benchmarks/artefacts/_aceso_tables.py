"""Aceso's tables of operators and of collectives, in seconds and bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.artefacts._csv_rows import read_rows
from simulator.curve import Curve
from simulator.errors import InputError
from simulator.workload import ScalingPoint
from traces.imports._imported import shown

MIB = 1 << 20
COLUMNS = ("forward-compute", "backward-compute", "input_size", "output_size", "weights", "activations")
_NAME = re.compile(r"(gpt|resnet)_(\w+?)_mbs(\d{1,6})_tp(\d{1,4})_algo(\d)")
_FAILED_S = 1e6
_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """Times and sizes of one operator on one device. activation_bytes: what it keeps for its backward."""

    forward_s: float
    backward_s: float
    input_bytes: float
    output_bytes: float
    weight_bytes: float
    activation_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """One file: a network at `samples` per micro-batch over `devices` in one of two variants of splitting."""

    path: Path
    model: str
    size: str
    samples: int
    devices: int
    variant: int
    rows: Mapping[str, OperatorRow]

    def seconds(self, names: Sequence[str]) -> tuple[float, float]:
        """(forward, backward) of several operators. Raises InputError for one that is missing."""
        for name in names:
            if name not in self.rows:
                raise InputError(f"{self.path}: operator {shown(name)} is missing; give the table whole")
        rows = [self.rows[name] for name in names]
        return sum(row.forward_s for row in rows), sum(row.backward_s for row in rows)

    def point(self, names: Sequence[str]) -> ScalingPoint:
        """The operators at this table's batch size, whole."""
        forward_s, backward_s = self.seconds(names)
        return ScalingPoint(batch_size=self.samples, forward_s=rounded(forward_s), backward_s=rounded(backward_s))


def read_table(path: Path) -> OperatorTable:
    """Raises InputError when the name does not say what was measured or a row is no row."""
    match = _NAME.search(path.name)
    if match is None:
        raise InputError(f"{path}: its name says what it measured: gpt_SIZE_mbsB_tpT_algoA.csv or resnet_SIZE_...csv")
    rows: dict[str, OperatorRow] = {}
    for number, row in enumerate(read_rows(path), 2):
        try:
            values = [float(row[name]) for name in COLUMNS]
        except (KeyError, ValueError):
            values = [-1.0]
        if not all(0 <= value < 1e9 for value in values) or not row.get("op_name"):
            raise InputError(f"{path}: line {number}: {', '.join(COLUMNS)} are numbers of at least 0, behind a name")
        forward_s, backward_s = (value / 1e6 for value in values[:2])
        read, written, weights, kept = (value * MIB for value in values[2:])
        rows[row["op_name"]] = OperatorRow(
            forward_s=forward_s,
            backward_s=backward_s,
            input_bytes=read,
            output_bytes=written,
            weight_bytes=weights,
            activation_bytes=kept,
        )
    model, size, samples, devices, variant = match.groups()
    return OperatorTable(
        path=path,
        model=model,
        size=size,
        samples=max(int(samples), 1),
        devices=max(int(devices), 1),
        variant=int(variant),
        rows=rows,
    )


def all_reduce_curve(table: OperatorTable) -> Curve | None:
    """All-reduces over the table's devices, from a file beside it; None where there is none."""
    points = {size: seconds for size, seconds in _collective(table, "all_reduce").items() if size}
    return Curve(points=tuple(sorted(points.items()))) if len(points) > 1 else None


def all_gathers(table: OperatorTable) -> dict[int, float]:
    """Seconds of gathering what the table's devices hold, by whole MiB of each; empty without a file beside it.

    They were measured at the sizes of this network, copies included, and do not lie on one curve.
    """
    return {round(size / MIB): seconds for size, seconds in _collective(table, "all_gather").items()}


def _collective(table: OperatorTable, name: str) -> dict[float, float]:
    """Seconds by bytes: of this network's own table, else, for the machine is the same, of another network's."""
    own = table.path.with_name(f"prim_{table.model}_{table.size}_{name}_{table.devices}gpus.csv")
    others = sorted(table.path.parent.glob(f"prim_*_{name}_{table.devices}gpus.csv"))
    path = own if own.is_file() else next(iter(others), None)
    points = {}
    for number, row in enumerate(read_rows(path) if path else (), 2):
        try:
            size, seconds = float(row["data_size(MB)"]) * MIB, float(row["time(ms)"]) / 1e3
        except (KeyError, ValueError):
            raise InputError(f"{path}: line {number}: it holds a size in MB and a time in ms") from None
        if 0 <= size < 1e15 and 0 < seconds < _FAILED_S:
            points[size] = seconds
    return points


def is_a_share(seconds: tuple[float, float], whole_s: tuple[float, float], devices: int) -> bool:
    """Whether both passes of a shard without its communication took at least half of their proportional share.

    What is less was mostly communication.
    """
    return all(part > _LEAST_SHARE / devices * whole for part, whole in zip(seconds, whole_s, strict=True))


def rounded(value: float) -> float:
    return float(f"{value:.6g}")
