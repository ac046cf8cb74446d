"""Queries on the table of a sweep: the best points, the best across a parameter, the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from simulator.errors import InputError, UnknownNameError, require, require_name
from simulator.sweep.evaluate import DONE
from simulator.sweep.points import quoted, select
from simulator.sweep.results_table import checked, read_only

Row = Mapping[str, Any]
OBJECTIVES = {
    "step": "step_s",
    "throughput": "samples_per_s",
    "cost": "dollars_per_sample",
    "memory": "peak_memory_bytes",
}
MORE_IS_BETTER = frozenset({"samples_per_s", "speedup", "efficiency"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A run of values of a parameter, from `first` to `last`, over which `name` is the best."""

    name: str
    first: Any
    last: Any


def best(folder: Path, objective: str, where: Sequence[str] = ()) -> list[Row]:
    """The points that ran and fit into memory and for which `where` holds, best first by the column `objective`.

    Points that lack the objective (no price, say) are left out. Raises InputError or UnknownNameError.
    """
    with read_only(folder) as table:
        columns = [row["name"] for row in table.execute("PRAGMA table_info(points)")]
        require_name("column", objective, columns)
        ran = f"status = '{DONE}' AND fits AND {quoted(objective)} IS NOT NULL"
        order = f"{quoted(objective)} {'DESC' if objective in MORE_IS_BETTER else 'ASC'}, number"
        rows = checked(folder, select(table, columns, "*", where, order, always=ran))
    _require_numbers(rows, objective)
    return rows


def _require_numbers(rows: Sequence[Row], column: str) -> None:
    rule = "points are compared by a column of numbers"
    for row in rows:
        require(not isinstance(row[column], str), column, repr(row[column]), rule)


def across(rows: Sequence[Row], parameter: str, by: str) -> dict[str, list[Row]]:
    """For each value of `by` and of the number `parameter`, the first of `rows`; ascending in the parameter.

    Raises UnknownNameError for a column that the rows lack, InputError when the parameter is no number.
    """
    best: dict[str, dict[float, Row]] = {}
    for row in rows:
        for column in (parameter, by):
            require_name("column", column, row)
        value = row[parameter]
        if value is not None and not isinstance(value, (int, float)):
            raise InputError(f"{parameter} is {value!r}: results are shown across a number")
        if value is not None:
            best.setdefault(str(row[by]), {}).setdefault(float(value), row)
    return {name: [of[value] for value in sorted(of)] for name, of in sorted(best.items())}


def leads(groups: Mapping[str, Sequence[Row]], parameter: str, objective: str) -> list[Lead]:
    """Which group is best where, in the order of the parameter, words last. At a tie the first name leads."""
    sign = -1 if objective in MORE_IS_BETTER else 1
    leader: dict[Any, tuple[float, str]] = {}
    for name, rows in groups.items():
        for row in rows:
            value, score = row[parameter], (sign * float(row[objective]), name)
            leader[value] = min(leader.get(value, score), score)
    ordered = sorted(leader, key=lambda value: (isinstance(value, str), value))
    runs = ((name, list(run)) for name, run in groupby(ordered, key=lambda value: leader[value][1]))
    return [Lead(name=name, first=run[0], last=run[-1]) for name, run in runs]


def pareto(rows: Sequence[Row], x: str, y: str) -> list[Row]:
    """The rows that no other row beats in one of the columns without losing in the other, best in `x` first.

    Of rows that are equal in both the first stays. Rows that lack one of the two are left out.
    """
    for column in (x, y):
        if rows and column not in rows[0]:
            raise UnknownNameError.of("column", column, rows[0])
        _require_numbers(rows, column)

    def score(row: Row) -> tuple[float, float]:
        return tuple(float(row[c]) * (-1 if c in MORE_IS_BETTER else 1) for c in (x, y))  # type: ignore[return-value]

    front: list[Row] = []
    for row in sorted((row for row in rows if row[x] is not None and row[y] is not None), key=score):
        if not front or score(row)[1] < score(front[-1])[1]:
            front.append(row)
    return front
