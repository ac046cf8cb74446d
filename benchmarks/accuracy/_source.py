"""A source of published runs as a section of docs/accuracy.md and an entry of its data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from textwrap import fill
from typing import Any

from benchmarks.accuracy._steps import Figures, PredictedStep
from benchmarks.pages.published import table

LINE = 120
"""Characters of a line of the page."""
MOST_LISTED = 16
"""Rows that the page lists; the data file has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Runs of one publication, predicted."""

    title: str
    """A heading."""
    method: str
    """A paragraph on what predicted them, and what of them was seen before."""
    steps: Sequence[PredictedStep]
    calibrated: str = "nothing"
    """What of the prediction was fitted to these runs."""
    commands: str = ""
    """What a user types for one of the runs."""
    not_expressed: Mapping[str, int]
    """Rows of the source that no plan of the product can say, by reason."""
    noise_floor: str = "no repeats in the source"
    """How far the measurements differ among themselves."""
    after: str = ""
    """Markdown behind the tables."""

    @property
    def figures(self) -> Figures:
        return Figures.of(self.steps)

    def section(self) -> str:
        """In Markdown."""
        command = "\n".join(f"    {line}" for line in self.commands.splitlines())
        parts = [
            f"## {self.title}",
            fill(self.method, LINE),
            command,
            self._figures_table(),
            self._listed(),
            self._below(),
        ]
        return "\n\n".join(part for part in (*parts, self.after) if part)

    def packed(self) -> dict[str, Any]:
        """For the data file: figures, and every run."""
        figures = {name: _number(value) for name, value in asdict(self.figures).items()}
        return {
            "title": self.title,
            "calibrated": self.calibrated,
            **figures,
            "rows": [_packed(each) for each in self.steps],
        }

    def _figures_table(self) -> str:
        families: dict[str, list[PredictedStep]] = {}
        for each in self.steps:
            families.setdefault(each.family, []).append(each)
        rows = [("all", list(self.steps)), *(families.items() if len(families) > 1 else ())]
        figures = [(name, Figures.of(steps)) for name, steps in rows if any(each.counted for each in steps)]
        shown = [column for column in COLUMNS if any(COLUMNS[column](each) != "-" for _, each in figures)]
        return table(["runs", *shown], [[name, *(COLUMNS[column](each) for column in shown)] for name, each in figures])

    def _listed(self) -> str:
        """The rows, where they are few."""
        if len(self.steps) > MOST_LISTED:
            return ""
        heads = ["step", "predicted ms", "measured ms", "error", "note"]
        rows = [
            [each.name, _ms(each.predicted_s), _ms(each.measured_s), f"{each.error:+.1%}", each.note]
            for each in self.steps
        ]
        return table(heads, rows)

    def _below(self) -> str:
        missing = "; ".join(f"{count} {why}" for why, count in self.not_expressed.items())
        said = [f"Fitted to these runs: {self.calibrated}.", f"Noise floor: {self.noise_floor}."]
        return " ".join([*said, f"No plan says: {missing}."] if missing else said)


def _ms(seconds: float | None) -> str:
    return "refused" if seconds is None else f"{1e3 * seconds:,.1f}"


def _percent(value: float, sign: str = "") -> str:
    return f"{value:{sign}.1%}" if isfinite(value) else "-"


COLUMNS = {
    "steps": lambda f: str(f.steps) if f.steps else "-",
    "failed": lambda f: str(f.failed) if f.steps else "-",
    "median": lambda f: _percent(f.median),
    "mean": lambda f: _percent(f.mean),
    "bias": lambda f: _percent(f.bias, "+"),
    "P90": lambda f: _percent(f.p90),
    "worst": lambda f: _percent(f.worst, "+"),
    "rank": lambda f: f"{f.rank:.2f}" if isfinite(f.rank) else "-",
    "regret": lambda f: f"{f.regret:.0%} / {f.worst_regret:.0%}" if isfinite(f.regret) else "-",
    "in interval": lambda f: f"{f.inside:.0%} of {f.width:.2f}" if isfinite(f.inside) else "-",
    "memory": lambda f: _percent(f.memory),
    "wrongly too large": lambda f: str(f.refused) if f.steps else "-",
    "plainest": lambda f: _percent(f.plain),
}
"""What a section says of its runs."""


def _number(value: float) -> float | None:
    return (round(value, 6) if isfinite(value) else None) if isinstance(value, float) else value


PACKED_FIELDS = tuple(each.name for each in fields(PredictedStep) if each.name not in ("interval", "plain_s"))


def rounded(step: PredictedStep) -> PredictedStep:
    """The step as the data file has it, so that tables of both are the same."""
    said = ((name, getattr(step, name)) for name in PACKED_FIELDS)
    numbers: dict[str, Any] = {name: float(f"{value:.6g}") for name, value in said if isinstance(value, float)}
    return replace(step, **numbers)


def _packed(step: PredictedStep) -> dict[str, Any]:
    """What differs from a step that says nothing."""
    plain, known = PredictedStep(name=""), rounded(step)
    pairs = ((name, getattr(known, name)) for name in PACKED_FIELDS)
    return {name: value for name, value in pairs if value == value and value != getattr(plain, name)}


def unpacked(source: Mapping[str, Any]) -> list[PredictedStep]:
    """The steps of an entry of the data file."""
    return [PredictedStep(**{"name": "", **row}) for row in source["rows"]]
