"""The points of a sweep: every combination that its constraints keep, without what makes no difference."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, product

from simulator import collectives
from simulator.errors import InputError, nearest, require_name
from simulator.lowering.schedules import SCHEDULES
from simulator.plan import Synchronisation
from simulator.sweep.axes import BANDWIDTH, LATENCY, Axis, Value, read_axes
from simulator.sweep.inputs import Inputs, load_inputs, machine_of, tier_of
from simulator.sweep.specification import FITS, REQUIRED, Specification

MACHINE = ("devices", "servers", "speed")
SYNCHRONISATION = tuple(field.name for field in fields(Synchronisation))
STEP = ("batch_size", "optimizer_state", "zero_stage", "shard_group", "seed", "choice")
ANY_PLAN = (*REQUIRED, *MACHINE, *SYNCHRONISATION, *STEP)
"""Parameters that make a difference whatever the strategy. Beside them stand its own options and tiers of links."""
NO_PARAMETERS = frozenset({"progress"})
"""Options of strategies that are no plain values."""
REGISTRIES: Mapping[str, Collection[str]] = {
    "collective": collectives.names(),
    "schedule": SCHEDULES,
    "choice": ("default", "best"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One combination: its number in the table, and a value (None where it makes no difference) per parameter."""

    number: int
    values: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Points:
    """The points of a sweep, the names of their parameters in order, what they name, and whether they must fit."""

    points: tuple[Point, ...]
    names: tuple[str, ...]
    inputs: Inputs
    must_fit: bool


def expand(specification: Specification, options: Mapping[str, Collection[str]]) -> Points:
    """The points of a sweep. `options` are the keyword options of every known strategy.

    A parameter that makes no difference to a point is left empty there: an option that its strategy does not have, a
    tier of links that its cluster lacks. Points that thereby become equal are one.
    Raises InputError, UnknownNameError or OSError before anything has run.
    """
    axes = read_axes(specification)
    named = tuple(name for axis in axes for name in axis.names)
    _check_registries(axes, options)
    raw = [dict(zip(named, chain.from_iterable(rows), strict=True)) for rows in product(*(axis.rows for axis in axes))]
    inputs = load_inputs(raw)
    _check_names(named, axes, options, inputs)
    names = (*REQUIRED, *dict.fromkeys(("devices", "batch_size", "seed", *(n for n in named if n not in REQUIRED))))
    plain = [_plain(point, names, options[str(point["strategy"])], inputs) for point in raw]
    distinct = list({tuple(point.values()): point for point in plain}.values())
    kept = _kept(distinct, names, [text for text in specification.where if text.strip() != FITS])
    if not kept:
        raise InputError(f"where leaves none of {len(distinct):,} points: {' and '.join(specification.where)}")
    return Points(
        points=tuple(Point(number, distinct[row]) for number, row in enumerate(kept)),
        names=names,
        inputs=inputs,
        must_fit=any(text.strip() == FITS for text in specification.where),
    )


def _values_of(name: str, axes: Iterable[Axis]) -> list[Value]:
    rows = (row[axis.names.index(name)] for axis in axes if name in axis.names for row in axis.rows)
    return list(dict.fromkeys(rows))


def _check_registries(axes: Sequence[Axis], options: Mapping[str, Collection[str]]) -> None:
    for what, known in {"strategy": options, **REGISTRIES}.items():
        for name in _values_of(what, axes):
            require_name(what, str(name), known)


def _check_names(
    named: Sequence[str], axes: Sequence[Axis], options: Mapping[str, Collection[str]], inputs: Inputs
) -> None:
    """Raise UnknownNameError on a parameter that no point of the sweep has a use for."""
    known = {*ANY_PLAN, *(option for name in _values_of("strategy", axes) for option in options[str(name)])}
    for tier in {tier for cluster in inputs.machines.values() for tier in cluster.tiers}:
        known |= {tier + BANDWIDTH, tier + LATENCY}
    for name in named:
        require_name("parameter", name, known - NO_PARAMETERS)


def _plain(
    point: Mapping[str, Value], names: Sequence[str], options: Collection[str], inputs: Inputs
) -> dict[str, Value]:
    """The point with defaults filled in and without what makes no difference to it."""
    cluster = inputs.machines[machine_of(point)]
    filled: dict[str, Value] = {
        "devices": cluster.workers,
        "batch_size": inputs.profile(point).batch_for(cluster.workers),
        "seed": 0,
    }
    filled |= {name: value for name, value in point.items() if value is not None}
    used = {*ANY_PLAN, *options}
    return {name: filled.get(name) if name in used or tier_of(name) in cluster.tiers else None for name in names}


def _kept(points: Sequence[Mapping[str, Value]], names: Sequence[str], where: Sequence[str]) -> list[int]:
    """Rows of `points` for which all expressions are true."""
    if not where:
        return list(range(len(points)))
    with sqlite3.connect(":memory:") as table:
        table.execute(f"CREATE TABLE points ({', '.join(map(quoted, names))})")
        slots = ", ".join("?" * len(names))
        table.executemany(f"INSERT INTO points VALUES ({slots})", (tuple(p.values()) for p in points))
        rows = select(table, names, "rowid - 1", where, "rowid", empty=True)
    table.close()
    return [row[0] for row in rows]


def quoted(name: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def select(
    table: sqlite3.Connection,
    names: Collection[str],
    what: str,
    where: Sequence[str],
    order: str,
    *,
    always: str = "TRUE",
    empty: bool = False,
) -> list[sqlite3.Row]:
    """Rows of `points` for which `always` and all of `where` are true; with `empty` also where they say nothing.

    Raises InputError that names what an expression gets wrong.
    """
    condition = " AND ".join(f"({text}) IS NOT FALSE" if empty else f"({text})" for text in (always, *where))
    try:
        return table.execute(f"SELECT {what} FROM points WHERE {condition} ORDER BY {order}").fetchall()
    except (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.Warning) as error:
        if not where:
            raise
        raise InputError(f"where is {' and '.join(where)!r}: {_problem_words(str(error), names)}") from None


def _problem_words(problem: str, names: Collection[str]) -> str:
    start, _, unknown = problem.partition("no such column: ")
    if start or not unknown:
        return problem
    near = nearest(unknown, names)
    return f"no such column {unknown!r}" + (f", did you mean {near!r}?" if near else f"; known: {', '.join(names)}")
