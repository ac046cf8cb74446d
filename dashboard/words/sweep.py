"""What a sweep says: where which strategy wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from dashboard.words.kpis import seconds_range
from simulator.sweep.chart import value_text
from simulator.units import format_time


def best_by_value(rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> str:
    """A sentence on the shortest step: which strategy wins for which values of the parameter, or which value does.

    rows: points that ran. With several parameters, the best point alone.
    """
    ran = [row for row in rows if row.get("step_s") is not None]
    if not ran:
        return ""
    best = min(ran, key=lambda row: row["step_s"])
    parameters = [name for name in swept if name != "strategy"]
    if "strategy" not in swept or len(parameters) != 1:
        values = ", ".join(f"{name.replace('_', ' ')} {value_text(name, best.get(name))}" for name in parameters)
        step = f"{format_time(best['step_s'])}{expected(best)}"
        return f"The shortest step, {step}, is of {best['strategy']} with {values}."
    return _winners(ran, parameters[0])


def expected(row: Mapping[str, Any]) -> str:
    """The step's interval as it stands behind the step, e.g. " (25.1 to 30.2 ms)"; empty where nothing is known."""
    ends = seconds_range((row["step_low_s"], row["step_high_s"])) if row.get("step_low_s") is not None else ""
    return f" ({ends})" if ends else ""


def _winners(rows: Sequence[Mapping[str, Any]], parameter: str) -> str:
    fastest: dict[Any, Mapping[str, Any]] = {}
    for row in rows:
        value = row.get(parameter)
        if value not in fastest or row["step_s"] < fastest[value]["step_s"]:
            fastest[value] = row
    values = sorted(fastest, key=lambda value: (isinstance(value, str), value))
    parts = []
    for name, same in groupby(values, key=lambda value: fastest[value]["strategy"]):
        members = list(same)
        ends = [value_text(parameter, value) for value in (members[0], members[-1])]
        where = f"at {ends[0]}" if ends[0] == ends[1] else f"from {ends[0]} to {ends[1]}"
        parts.append(f"{name} wins {where}")
    never = sorted({row["strategy"] for row in rows} - {row["strategy"] for row in fastest.values()})
    losers = f"; {' and '.join(never)} never" if never else ""
    sentence = "; ".join(parts) + losers + "."
    return sentence[0].upper() + sentence[1:]
