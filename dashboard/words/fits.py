"""The one verdict on a step, as every page says it: a word and a colour, and when a plan is no yardstick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.state.simulating import Glance, Outcome
from simulator.memory_fit import Fit

COLOURS: Mapping[Fit, str] = {"fits": "green", "border": "orange", "does not fit": "red", "breaks a rule": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVerdict:
    """word: as `simulate` has it, or "cannot run". reason: why, empty where the step fits."""

    word: str
    colour: str
    reason: str = ""


def verdict_of(outcome: Outcome) -> ShownVerdict:
    """Whether a step runs and fits into memory."""
    report = outcome.report
    if report is None:
        return ShownVerdict(word="cannot run", colour="red", reason=outcome.reason)
    return ShownVerdict(
        word=report.fit, colour=COLOURS[report.fit], reason=report.verdict.removeprefix(f"{report.fit}: ")
    )


def yardstick(known: Mapping[str, Glance]) -> Glance | None:
    """Data parallelism, where it fits into memory: a plan that does not run is nothing to be measured by."""
    data = known.get("data")
    return data if data is not None and data.fits else None


def missing(glance: Glance | None) -> str:
    """Why a plan has no figures (yet); empty where it has."""
    if glance is None:
        return "simulated in the background …"
    return "" if glance.ran else glance.reason
