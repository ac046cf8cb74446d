"""Steps that others measured on GPUs and published, beside what was predicted of them (docs/accuracy.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    """A step of a set: what was run, seconds predicted and measured, and what the reader has to know."""

    name: str
    predicted_s: float
    measured_s: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSet:
    """A source's steps that count, how many, and their errors, predicted over measured less 1.

    rows: those that the page lists one by one.
    """

    title: str
    steps: int
    mean_absolute_error: float
    bias: float
    worst: float
    rows: tuple[PublishedStep, ...]


@cache
def published_sets() -> tuple[PublishedSet, ...]:
    """The sets that ship, which `python -m benchmarks.accuracy.summary --pack` makes of the page."""
    text = resources.files("dashboard").joinpath("published.json").read_text(encoding="utf-8")
    return tuple(
        PublishedSet(**{**each, "rows": tuple(PublishedStep(**row) for row in each["rows"])})
        for each in json.loads(text)
    )
