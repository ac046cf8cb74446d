"""What a prediction stands on, and how far predictions of its kind were off on steps that others measured.

The kinds, from the nearest to the furthest; `evidence.json` holds what `python -m benchmarks.accuracy --write` counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from simulator.language_models.training_stack import NEAREST, stack_of
from simulator.lowering.costs.typical_scaling import device_class
from simulator.workload import Profile

Kind = Literal["captured", "timed", "calibrated", "stated", "unnamed", "mixture"]
WORDS: dict[Kind, str] = {
    "captured": "layers captured on such a device",
    "timed": "layers timed on one such GPU",
    "calibrated": "a model card, by software calibrated on such GPUs",
    "stated": "a model card, by what software reaches of other GPUs",
    "unnamed": "a model card, whose software is not named (--stack)",
    "mixture": "the card of a mixture of experts, whose launches are not all counted",
}
CARDS: tuple[Kind, ...] = ("calibrated", "stated", "unnamed")
"""Kinds of predictions from a model card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionEvidence:
    """How far predictions of a kind were off."""

    kind: Kind
    steps: int
    """Published steps that were predicted so."""
    sources: int
    """Publications that they are from."""
    median: float
    """Their median error, a ratio."""
    low: float
    """Measured over predicted of a further source's steps: 5 in 100 are below."""
    high: float
    """The same: 5 in 100 are above."""

    @property
    def words(self) -> str:
        """In a line."""
        known = f"{self.steps} published steps of {self.sources} source{'s' * (self.sources > 1)}"
        return f"{WORDS[self.kind]}: {self.median:.0%} off at the median of {known}"


def kind_of(profile: Profile) -> Kind | None:
    """What the seconds of `profile` stand on; None where its device is neither CPU nor GPU."""
    stack = stack_of(profile)
    if stack is None:
        device = device_class(profile.device)
        return "timed" if device == "GPU" else "captured" if device == "CPU" else None
    if any(layer.routing for layer in profile.layers):
        return "mixture"
    if profile.software.get("stack_by") == NEAREST:
        return "unnamed"
    return "calibrated" if stack.calibrated_on in profile.device.lower().split() else "stated"


def evidence_of(profile: Profile) -> PredictionEvidence | None:
    """Of predictions made from `profile`; of a card those of the next kind where none was published so; else None."""
    kind, known = kind_of(profile), known_evidence()
    kinds = CARDS[CARDS.index(kind) :] if kind in CARDS else (kind,)
    return next((known[each] for each in kinds if each in known), None)


@cache
def known_evidence() -> dict[Kind, PredictionEvidence]:
    """What ships, by kind."""
    text = resources.files("simulator.report").joinpath("evidence.json").read_text(encoding="utf-8")
    return {each["kind"]: PredictionEvidence(**each) for each in json.loads(text)}
