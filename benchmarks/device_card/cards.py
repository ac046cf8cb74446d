"""What is measured of whole steps on one device beside a profile's prediction of it. No torch here.

A Card belongs to one captured profile. Its checks are written, with their predictions, before anything of them is
measured, so a card with measurements is the same card as before, filled in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

STEP, ACCUMULATION, CHANNELS, MEMORY, PIPELINE = "step", "accumulation", "channels", "memory", "pipeline"
UNSEEN_FRACTIONS = (3 / 4, 3 / 8, 3 / 16)
MICROBATCHES = (2, 4, 8, 16, 32)
STAGES = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing to predict and to measure: in bytes for "memory", otherwise in seconds.

    "step", "accumulation": a training step of batch_size in so many micro-batches. "channels": forward and backward of
    `layer` with a fraction of its channels. "memory": the most that a step holds. "pipeline": a step of so many stages
    that share the device. spread: interquartile range. graph: seconds of the step as a CUDA graph. skipped: why there
    is no measurement, no_graph: why there is no graph.
    """

    kind: str
    batch_size: int
    microbatches: int = 1
    stages: int = 1
    layer: str = ""
    fraction: float = 1.0
    predicted: float | None = None
    measured: float | None = None
    spread: float = 0.0
    repeats: int = 0
    graph: float | None = None
    skipped: str = ""
    no_graph: str = ""

    @property
    def done(self) -> bool:
        return self.measured is not None or bool(self.skipped)

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; None where one of them is missing."""
        return self.predicted / self.measured - 1 if self.predicted is not None and self.measured else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The checks of one profile, whose own batch size is batch_size. unpredicted: why predictions are missing."""

    model: str
    dtype: str
    device: str
    batch_size: int
    date: str
    unpredicted: str = ""
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Measured (bytes, seconds) of copies by direction, and why a direction is missing."""

    device: str
    date: str
    repeats: int
    curves: dict[str, tuple[tuple[int, float], ...]]
    skipped: dict[str, str]


def read_card(path: Path) -> Card:
    """The card in a file that this project wrote; needs nothing but the standard library."""
    content = _content(path)
    return Card(**{**content, "checks": tuple(Check(**check) for check in content["checks"])})


def read_copies(path: Path) -> Copies:
    """The copies in a file that this project wrote."""
    return Copies(**_content(path))


def card_of(content: dict[str, Any], date: str) -> Card:
    """The checks that a profile's JSON content calls for, with nothing predicted or measured."""
    size, layers = content["batch_size"], content["layers"]
    seen = {1 << i for i in range(size.bit_length()) if 1 << i <= size} | {size}
    unseen = sorted({size * 3 // part for part in (4, 8, 16)} - seen - {0})
    micro = max(size // 8, 1)
    narrow = sorted((x for x in layers if _narrow_points(x)), key=lambda x: x["forward_s"] + x["backward_s"])
    costliest = [layer["name"] for layer in narrow[-1:]]
    return Card(
        model=content["model"],
        dtype=content.get("dtype", "float32"),
        device=content["device"],
        batch_size=size,
        date=date,
        checks=(
            *(Check(kind=STEP, batch_size=each) for each in (size, *unseen)),
            *(Check(kind=ACCUMULATION, batch_size=micro * count, microbatches=count) for count in MICROBATCHES),
            *(Check(kind=MEMORY, batch_size=each) for each in sorted({*seen, *unseen})),
            *(
                Check(kind=CHANNELS, batch_size=size, layer=name, fraction=fraction)
                for name in costliest
                for fraction in UNSEEN_FRACTIONS
            ),
            *(Check(kind=PIPELINE, batch_size=micro * 8, microbatches=8, stages=stages) for stages in STAGES),
        ),
    )


def stage_names(layers: Sequence[tuple[str, float]], stages: int) -> list[list[str]]:
    """(name, seconds) of layers in order, cut into stages of about equal seconds and at least one layer each."""
    ends = list(accumulate(seconds for _, seconds in layers))
    cuts = [0]
    for stage in range(1, stages):
        wanted = ends[-1] * stage / stages
        first, last = cuts[-1] + 1, len(layers) - (stages - stage)
        cuts.append(min(range(first, last + 1), key=lambda cut: abs(ends[cut - 1] - wanted)))
    names = [name for name, _ in layers]
    return [names[a:b] for a, b in zip(cuts, [*cuts[1:], len(names)], strict=True)]


def _narrow_points(layer: dict[str, Any]) -> bool:
    return layer.get("parameter_bytes", 0) > 0 and any(
        "channel_fraction" in point for point in layer.get("scaling", ())
    )


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    del content["schema"]
    return content
