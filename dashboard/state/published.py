"""Steps that others measured on GPUs and published, beside what was predicted of them (docs/accuracy.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    """A step of a set: what was run, seconds predicted and measured, and what the reader has to know."""

    name: str
    predicted_s: float
    measured_s: float
    note: str = ""


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
    """The sets that ship, which `python -m benchmarks.accuracy --write` makes."""
    text = resources.files("dashboard").joinpath("published.json").read_text(encoding="utf-8")
    return tuple(_set(each) for each in json.loads(text) if each["steps"])


def _set(source: Mapping[str, Any]) -> PublishedSet:
    figures = {name: source[name] for name in ("title", "steps", "failed", "median", "bias", "worst")}
    rows = [row for row in source["rows"] if "predicted_s" in row and "measured_s" in row]
    steps = tuple(
        PublishedStep(**{name: row.get(name, "") for name in ("name", "predicted_s", "measured_s", "note")})
        for row in rows
    )
    return PublishedSet(**figures, rows=steps)
