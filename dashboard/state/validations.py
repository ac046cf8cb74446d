"""Stored validations: where they come from, and their runs in groups; steps that others measured. No Dash here."""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from simulator import files
from traces.results.timeline_comparison import Comparison
from traces.results.validations import ValidatedRun, Validation, explained

SHIPPED = Path(__file__).resolve().parent.parent / "validation.json"
"""The home suite, its runs as sums."""
FIELD = SHIPPED.with_name("field.zip")
"""A field suite with every run's tasks, which
`python -m benchmarks.machines.validation --pack` makes of a validation's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A validation and the folder that its runs are kept in; without one, nothing is known task by task."""

    validation: Validation
    folder: Path | None = None

    def explained(self, outcome: ValidatedRun) -> Comparison | None:
        """The run task by task, None where no timeline of it is stored. Raises InputError or OSError."""
        return None if self.folder is None else explained(self.folder, outcome.case)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs with something in common, worst first, and the mean of their absolute errors."""

    name: str
    outcomes: tuple[ValidatedRun, ...]

    @property
    def mean_absolute_error(self) -> float:
        """Of the predicted steps, as a ratio to the actual ones."""
        return sum(abs(outcome.error) for outcome in self.outcomes) / len(self.outcomes)


def at_hand(path: Path | None = None) -> dict[str, Stored]:
    """The validation at `path`, a file or the folder of `shardscope validate`; the shipped ones come next.

    Of these the field suite is first: its networks were drawn by chance, and its runs can be seen task by task.
    Raises InputError where a file is no validation, OSError where it cannot be read.
    """
    opened = {} if path is None else {(path if path.is_dir() else path.with_suffix("")).name: _opened(path)}
    field = {"field": _opened(_unpacked(FIELD))} if FIELD.exists() else {}
    return opened | field | {"home": _opened(SHIPPED)}


def grouped(outcomes: Sequence[ValidatedRun], by: str) -> list[Group]:
    """The runs by one of GROUPINGS, the group with the largest mean absolute error first."""
    by_name: dict[str, list[ValidatedRun]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: -abs(outcome.error)):
        by_name.setdefault(GROUPINGS[by](outcome), []).append(outcome)
    groups = [Group(name=name, outcomes=tuple(members)) for name, members in by_name.items()]
    return sorted(groups, key=lambda group: -group.mean_absolute_error)


def _opened(path: Path) -> Stored:
    file = path / "validation.json" if path.is_dir() else path
    return Stored(validation=files.read_json(file, Validation), folder=path if path.is_dir() else None)


@cache
def _unpacked(archive: Path) -> Path:
    """The folder that an archive holds, there as long as this process is."""
    folder = tempfile.TemporaryDirectory(prefix="shardscope-validation-")
    atexit.register(folder.cleanup)
    with ZipFile(archive) as packed:
        packed.extractall(folder.name)
    return Path(folder.name)


def _how(outcome: ValidatedRun) -> str:
    case = outcome.case
    if case.via == "ddp":
        return "data, DDP" if case.straggler is None else "data, straggler"
    if case.via == "pipelining":
        return str(case.options.get("schedule", case.strategy))
    return f"{case.strategy}, executor"


GROUPINGS: Mapping[str, Callable[[ValidatedRun], str]] = {
    "strategy": _how,
    "ranks": lambda outcome: f"{outcome.case.network.ranks} ranks",
    "network": lambda outcome: outcome.case.model.rpartition(":")[2],
    "rate": lambda outcome: f"{outcome.case.network.mbit} Mbit/s",
}
"""What runs can have in common, and its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    """A step of a set: what was run, seconds predicted and measured, and what the reader has to know."""

    name: str
    predicted_s: float
    measured_s: float
    note: str = ""
    counted: bool = True
    """Whether it enters the figures of its set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSet:
    """A source's steps that count, how many, and their errors, predicted over measured less 1; median is absolute.

    failed: of the steps, how many the product refuses to predict. rows: those that were predicted.
    """

    title: str
    steps: int
    failed: int
    median: float
    bias: float
    worst: float
    rows: tuple[PublishedStep, ...]


@cache
def published_sets() -> tuple[PublishedSet, ...]:
    """Steps on GPUs beside what was predicted of them (docs/accuracy.md), which `benchmarks.accuracy --write` makes."""
    text = resources.files("dashboard").joinpath("published.json").read_text(encoding="utf-8")
    return tuple(_set(each) for each in json.loads(text) if each["steps"])


def published_errors() -> list[float]:
    """Absolute errors of the steps that count; those predicted twice, with their software named and without, once."""
    of = {(step.name, step.measured_s): step for each in reversed(published_sets()) for step in each.rows}
    return [abs(step.predicted_s / step.measured_s - 1) for step in of.values() if step.counted]


def _set(source: Mapping[str, Any]) -> PublishedSet:
    figures = {name: source[name] for name in ("title", "steps", "failed", "median", "bias", "worst")}
    rows = [row for row in source["rows"] if "predicted_s" in row and "measured_s" in row]
    steps = tuple(
        PublishedStep(**{field: row[field] for field in PublishedStep.__dataclass_fields__ if field in row})
        for row in rows
    )
    return PublishedSet(**figures, rows=steps)
