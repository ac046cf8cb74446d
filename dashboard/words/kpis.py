"""The six numbers on top, each with its difference to the baseline, and the one verdict on a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dashboard.state.measures import fullest
from dashboard.state.simulating import Glance, Outcome
from dashboard.words.volume import volume_unit
from simulator.report.interval import StepInterval
from simulator.report.memory import Fit
from simulator.report.metrics import Report
from simulator.units import format_bytes, format_time

GOOD, BAD, SAME = "good", "bad", "same"
COLOURS: Mapping[Fit, str] = {"fits": "green", "border": "orange", "does not fit": "red", "breaks a rule": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kpi:
    """A key figure in words; change is "▼ 12.0%" or empty, tone tells an improvement; hint explains it.

    note: what must not be missed about the value.
    """

    label: str
    value: str
    hint: str
    change: str = ""
    tone: str = SAME
    note: str = ""


def idle_words(report: Report, workers: int) -> str:
    """e.g. "4 of 8 devices idle"; empty where all compute."""
    idle = sum(device.compute_s == 0 for device in report.devices[:workers])
    return f"{idle} of {workers} devices idle" if idle else ""


def seconds_range(ends_s: tuple[float, float] | None) -> str:
    """e.g. "25.1 to 30.2 ms", the unit once where both ends have it; empty where there is none or both read alike."""
    low, high = map(format_time, ends_s or (0.0, 0.0))
    number, _, unit = low.rpartition(" ")
    return "" if low == high else f"{number if high.endswith(f' {unit}') else low} to {high}"


def interval_hint(interval: StepInterval, step_s: float) -> str:
    """What the interval of a step of `step_s` seconds is made of, as the command line says it."""
    middle = f", around {format_time(interval.middle_s)} as devices vary" if interval.middle_s != step_s else ""
    parts = ", ".join(f"{cause} {format_time(max(sides))}" for cause, sides in interval.parts.items())
    unknown = f"; not included: {'; '.join(interval.unknown)}" if interval.unknown else ""
    return f"; 90% sure of the range below it{middle}, by {parts}{unknown}" if parts else unknown


def kpis(report: Report, baseline: Report | None, tokens: int = 0, interval: StepInterval | None = None) -> list[Kpi]:
    """Step time, throughput, bubble, load balance ratio, bytes sent, peak memory.

    tokens: of a sample that has any. interval: of the step.
    """
    used = fullest(report)
    around = interval_hint(interval, report.step_s) if interval else ""
    ends = seconds_range((interval.low_s, interval.high_s)) if interval and interval.parts else ""
    samples = rate_words(report.samples_per_s)

    def kpi(label: str, value: str, hint: str, read: Callable[[Report], float], note: str = "", **kind: bool) -> Kpi:
        change, tone = difference(read(report), read(baseline), **kind) if baseline else ("", SAME)
        return Kpi(label=label, value=value, hint=hint, change=change, tone=tone, note=note)

    throughput = (
        ("Throughput, tokens", f"{report.samples_per_s * tokens:,.0f} /s",
         f"tokens per second: {samples} sequences of {tokens:,}")
        if tokens else ("Throughput", f"{samples} /s", "samples per second")
    )  # fmt: skip
    return [
        kpi("Step time", format_time(report.step_s), f"one training step{around}", lambda r: r.step_s,
            f"90% sure: {ends}" if ends else ""),
        kpi(*throughput, lambda r: r.samples_per_s, more=True),
        kpi("Bubble", f"{report.bubble_ratio:.1%}", "devices waiting for each other", lambda r: r.bubble_ratio,
            points=True),
        kpi("Max / mean load", f"{report.load_balance_ratio:.3f}", "load balance ratio",
            lambda r: r.load_balance_ratio),
        kpi("Sent per step", volume_unit(_sent(report)).words(_sent(report)), "bytes between devices", _sent),
        kpi("Peak memory", format_bytes(used.peak_memory_bytes), f"on {used.name}",
            lambda r: fullest(r).peak_memory_bytes,
            f"of {format_bytes(used.memory_bytes)}" if used.memory_bytes else ""),
    ]  # fmt: skip


def rate_words(per_s: float) -> str:
    """Something per second with four digits or all that stand before the point, never as a power of ten."""
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:.4g}"


def difference(now: float, before: float, *, more: bool = False, points: bool = False) -> tuple[str, str]:
    """("▼ 12.0%", tone) of a change. more: larger is better. points: the values are ratios, told in points."""
    if before == 0 and not points and now != 0:
        return "▲ from 0", GOOD if more else BAD
    change = now - before if points else now / before - 1 if before else 0.0
    if abs(change) < 0.0005:
        return "= 0%", SAME
    text = f"{abs(change) * 100:,.1f}{' pt' if points else '%'}"
    return f"{'▲' if change > 0 else '▼'} {text}", GOOD if (change > 0) == more else BAD


def _sent(report: Report) -> float:
    return report.communication_bytes.total


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
