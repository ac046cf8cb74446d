"""The account of a job over a scenario: what it did when, and what each event cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.ordered_sum import ordered_sum
from simulator.taskgraph import Floats
from simulator.units import format_duration, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of time: "train", "checkpoint", "lost step", "idle" or the policy of a pause; on so many devices.

    why: the step does not fit on devices that are idle.
    """

    start_s: float
    end_s: float
    what: str
    devices: int
    samples_per_s: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An event and what it cost.

    parts_s: seconds of the pause by part; beside_s: of what ran beside the training before it. lost_step_s: work on the
    step in flight that was thrown away, with lost_samples in it, which the next step trains again; again_s: repeating
    the steps since the checkpoint, with repeated_samples in them. No sample is left out. devices, samples_per_s: the
    steady state after the event.
    """

    at_s: float
    event: str
    policy: str
    parts_s: Mapping[str, float]
    beside_s: Mapping[str, float]
    lost_step_s: float
    again_s: float
    lost_samples: int
    repeated_samples: int
    moved_bytes: float
    devices: int
    samples_per_s: float

    @property
    def lost_s(self) -> float:
        """Pause, lost step and steps done again."""
        return ordered_sum(self.parts_s.values()) + self.lost_step_s + self.again_s

    @property
    def parts_text(self) -> str:
        """The parts of the pause with their times, and what went on beside the training."""
        pause = {**self.parts_s, "step in flight": self.lost_step_s, "steps again": self.again_s}
        parts = [f"{name} {format_time(seconds)}" for name, seconds in pause.items() if seconds]
        beside = [f"{name} {format_time(seconds)}" for name, seconds in self.beside_s.items() if seconds]
        return " + ".join(parts) + (f"; beside the training {' + '.join(beside)}" if beside else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A job from start to end.

    samples: trained and not rolled back. dollars: of all devices from joining to leaving, 0 without prices. segments:
    back to back from 0 to duration_s. incidents: one per event that reached a member, in order of time.
    """

    policy: str
    duration_s: float
    samples: int
    dollars: float
    segments: tuple[Segment, ...]
    incidents: tuple[Incident, ...]

    @property
    def lost_s(self) -> float:
        """Seconds lost to all events."""
        return ordered_sum(incident.lost_s for incident in self.incidents)

    @property
    def lost_samples(self) -> int:
        """Samples in steps that were thrown away, trained again in the next step."""
        return sum(incident.lost_samples for incident in self.incidents)

    @property
    def repeated_samples(self) -> int:
        """Samples that were trained again after going back to a checkpoint."""
        return sum(incident.repeated_samples for incident in self.incidents)

    @property
    def samples_per_s(self) -> float:
        """Mean over the whole job, pauses included."""
        return self.samples / self.duration_s

    @property
    def dollars_per_million(self) -> float:
        """Of a million samples; 0 without prices or samples."""
        return self.dollars / self.samples * 1e6 if self.samples else 0.0

    @property
    def misfits(self) -> list[str]:
        """In words, the devices that are idle because the step does not fit."""
        idle = dict.fromkeys((segment.devices, segment.why) for segment in self.segments if segment.why)
        return [f"idle on {devices} device{'s' * (devices > 1)}: {why}" for devices, why in idle]

    @property
    def totals(self) -> dict[str, str]:
        """What came of the job in words, by title; what has no price is "-"."""
        return {
            "samples": f"{self.samples:,}",
            "samples/s": f"{self.samples_per_s:,.1f}",
            "lost to events": f"{format_duration(self.lost_s)} ({self.lost_s / self.duration_s:.2%})",
            "checkpoints": format_duration(self.spent_s("checkpoint")),
            "idle": format_duration(self.spent_s("idle")),
            "repeated": f"{self.repeated_samples + self.lost_samples:,}",
            "cost": f"${self.dollars:,.2f}" if self.dollars else "-",
            "$ / M samples": f"{self.dollars_per_million:,.2f}" if self.dollars and self.samples else "-",
        }

    def spent_s(self, what: str) -> float:
        """Seconds of the segments of one kind."""
        return ordered_sum(segment.end_s - segment.start_s for segment in self.segments if segment.what == what)

    def throughput(self, intervals: int) -> tuple[Floats, Floats]:
        """(edges in s, shape (intervals + 1,); mean samples/s in each interval), pauses and repeated steps included."""
        edges_s = np.linspace(0.0, self.duration_s, intervals + 1)
        moments = np.array([0.0, *(segment.end_s for segment in self.segments)])  # (segments + 1,)
        work = [segment.samples_per_s * (segment.end_s - segment.start_s) for segment in self.segments]
        samples_done = np.interp(edges_s, moments, np.concatenate([[0.0], np.cumsum(work)]))  # (intervals + 1,)
        return edges_s, np.diff(samples_done) / np.diff(edges_s)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings, ready for JSON."""
        totals = {name: getattr(self, name) for name in ("lost_s", "lost_samples", "repeated_samples")}
        account = {**asdict(self), **totals, "checkpoint_s": self.spent_s("checkpoint"), "idle_s": self.spent_s("idle")}
        for plain, incident in zip(account["incidents"], self.incidents, strict=True):
            plain["lost_s"] = incident.lost_s
        return account


def incident_rows(account: Account) -> list[dict[str, Any]]:
    """One flat row per incident, for files."""
    return [
        {
            "at_s": incident.at_s,
            "event": incident.event,
            "policy": incident.policy,
            "lost_s": incident.lost_s,
            "parts": incident.parts_text,
            "lost_samples": incident.lost_samples,
            "repeated_samples": incident.repeated_samples,
            "moved_bytes": incident.moved_bytes,
            "devices": incident.devices,
            "samples_per_s": incident.samples_per_s,
        }
        for incident in account.incidents
    ]
