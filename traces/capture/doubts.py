"""Why the layers of a capture do not add up to its step, and what to do about it.

Layers one by one and whole steps are measured in the same rounds. Where they differ by more than TRUSTED either the
machine was disturbed while it measured, which passes, or the network spends time outside of its layers, which does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

TRUSTED = 0.15
"""By how much the layers may differ from the step, and disturbances may lengthen it, before they are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known of a series of measurements."""

    ratio: float
    """Seconds of all layers one by one over those of the whole step, both as measured."""
    queued: float
    """Share of the steps' time on the wall in which other programs had the core; 0 where the kernel does not say."""
    stolen: float
    """Share of the core time that the host of a virtual machine took; 0 where the kernel does not say."""
    drift: float
    """The step at the end over that at the beginning."""
    ahead: bool
    """Whether the host runs ahead of the device, as with a GPU, so that launching is in the step and in no layer."""

    @property
    def off(self) -> bool:
        return not 1 - TRUSTED <= self.ratio <= 1 + TRUSTED

    @property
    def disturbed(self) -> bool:
        """Whether measuring again may help."""
        return any(True for _ in _disturbances(self))


def doubt(seen: Circumstances) -> str:
    """Why a profile's times may be doubtful and what to do; empty where the layers add up to the step."""
    if not seen.off:
        return ""
    reasons = [*_disturbances(seen), _own(seen)]
    return f"layers one by one took {seen.ratio:.2f} of the step: {', or '.join(reasons)}"


def _disturbances(seen: Circumstances) -> Iterator[str]:
    if seen.queued > TRUSTED:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        busy = f"others had the core for {seen.queued:.0%} of the time (load {load:.1f} on {cores} cores)"
        yield f"{busy}, so end them"
    if seen.stolen > TRUSTED:
        yield f"its host took {seen.stolen:.0%} of the machine's core time, so capture elsewhere"
    if not 1 / (1 + TRUSTED) <= seen.drift <= 1 + TRUSTED:
        yield f"steps took {seen.drift:.2f} times as long in the end, so let its clock settle"


def _own(seen: Circumstances) -> str:
    """What of the network itself lets layers and step differ."""
    if seen.ratio > 1:
        return "small layers, whose timing counts, so take a larger --batch-size"
    if seen.ahead:
        return "the host launches slower than the device computes, so take a larger --batch-size"
    return "loops, Python or operators that are in no layer, so take a larger --batch-size"


def drift(steps_s: Sequence[float]) -> float:
    """The median of the last third over that of the first; 1 where there are too few."""
    third = len(steps_s) // 3
    return median(steps_s[-third:]) / median(steps_s[:third]) if third > 1 else 1.0
