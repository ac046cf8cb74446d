"""What a sweep says: its quantities, each in one unit on the whole page, and where which strategy wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from simulator.sweep.chart import column_title, value_text
from simulator.sweep.queries import leads


class SweptQuantity(NamedTuple):
    """A column of numbers that come out: name, unit ("" where it has none), what a value in SI units is multiplied by
    to be in that unit, decimals."""

    name: str
    unit: str
    factor: float
    decimals: int

    @property
    def title(self) -> str:
        """The name and the unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def number(self, value: float) -> str:
        """A value in SI units as a number in the unit."""
        return f"{value * self.factor:,.{self.decimals}f}"

    def words(self, value: float) -> str:
        """The number and the unit."""
        return f"{self.number(value)}{'' if self.unit == '%' else ' '}{self.unit}".strip()


QUANTITIES: Mapping[str, SweptQuantity] = {
    "step_s": SweptQuantity("step", "ms", 1e3, 2),
    "samples_per_s": SweptQuantity("samples/s", "", 1.0, 1),
    "peak_memory_bytes": SweptQuantity("peak memory", "GiB", 2**-30, 3),
    "communication_bytes": SweptQuantity("sent per step", "GiB", 2**-30, 3),
    "bubble_ratio": SweptQuantity("bubble", "%", 100.0, 1),
    "load_balance_ratio": SweptQuantity("load balance ratio", "", 1.0, 3),
    "dollars_per_sample": SweptQuantity("dollars per million samples", "", 1e6, 2),
}
"""By its column in the sweep's table."""
_STEP = QUANTITIES["step_s"]


def axis_title(column: str) -> str:
    """The title of a column's axis: a quantity with the unit in which figures show it, or a parameter."""
    return QUANTITIES[column].title if column in QUANTITIES else column_title(column)


def best_by_value(rows: Sequence[Mapping[str, Any]], swept: Sequence[str], *, over: bool = True) -> str:
    """A sentence on the shortest step: which strategy wins for which values of the parameter, or which value does.

    rows: points that ran, of which those win that fit. With several parameters, the best point alone. over: whether
    none is left to run.
    """
    lead = "" if over else "So far: "
    ran = [row for row in rows if row.get("step_s") is not None and row.get("fits", True)]
    if not ran:
        return f"{lead}No point fits into memory." if rows else ""
    best = min(ran, key=lambda row: row["step_s"])
    parameters = [name for name in swept if name != "strategy"]
    if "strategy" not in swept or len(parameters) != 1:
        values = ", ".join(f"{column_title(name)} {value_text(name, best.get(name))}" for name in parameters)
        step = f"{_STEP.words(best['step_s'])}{expected(best)}"
        return f"{lead}The shortest step, {step}, is of {best['strategy']} with {values}."
    differing = [row for row in ran if row.get(parameters[0]) is not None]
    nowhere = sorted({row["strategy"] for row in rows} - {row["strategy"] for row in ran})
    none = f" Nowhere fits: {', '.join(nowhere)}." if nowhere else ""
    return lead + _winners(differing, parameters[0]) + none if differing else ""


def expected(row: Mapping[str, Any]) -> str:
    """The step's interval as it stands behind the step, e.g. " (25.10 to 30.20 ms)"; empty where nothing is known."""
    return f" ({ends} {_STEP.unit})" if (ends := interval(row)) else ""


def interval(row: Mapping[str, Any]) -> str:
    """The ends of the step's interval in the unit of the step, e.g. "25.10 to 30.20"."""
    if row.get("step_low_s") is None:
        return ""
    low, high = (_STEP.number(row[name]) for name in ("step_low_s", "step_high_s"))
    return f"{low} to {high}" if low != high else ""


def _winners(rows: Sequence[Mapping[str, Any]], parameter: str) -> str:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["strategy"], []).append(row)
    parts, best = [], leads(groups, parameter, "step_s")
    for lead in best:
        first, last = (value_text(parameter, value) for value in (lead.first, lead.last))
        parts.append(f"{lead.name} wins {f'at {first}' if first == last else f'from {first} to {last}'}")
    never = sorted(groups.keys() - {lead.name for lead in best})
    losers = f"; {' and '.join(never)} never" if never else ""
    sentence = "; ".join(parts) + losers + "."
    return sentence[0].upper() + sentence[1:]
