"""What a change of a crew's members took: the parts of the pause, from the members' logs.

A part ends when the last member has ended it, so the parts of a pause add up to it: from the end of the last step
before to the moment when everybody can begin the next one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.elastic.reconfiguration import DETECT, FRAMEWORK, GROUPS, LAUNCH, LEAVE, MOVE, READ, STOP, WRITE
from simulator.errors import RunError
from traces.elastic.process_group import ElasticProcessGroup

PARTS = {
    "live": (LEAVE, GROUPS, MOVE),
    "shrink": (LEAVE, GROUPS, MOVE),
    "recover": (DETECT, LEAVE, GROUPS, MOVE),
    "restart": (WRITE, STOP, LAUNCH, FRAMEWORK, GROUPS, READ),
}

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """A change of members as it went.

    parts_s: of the pause. beside_s: from the order to the last joiner's readiness. slowed_s: by how much steps beside
    that took longer than steps before it. first_s: by how much the first step after the pause took longer than later
    ones. step_s: a steady step afterwards.
    """

    policy: str
    before: int
    after: int
    parts_s: Mapping[str, float]
    beside_s: float
    slowed_s: float
    first_s: float
    step_s: float

    @property
    def pause_s(self) -> float:
        return sum(self.parts_s.values())

    @property
    def lost_s(self) -> float:
        """The pause, and what steps around it took longer than steady ones."""
        return self.pause_s + self.slowed_s + self.first_s


def switch_of(crew: ElasticProcessGroup, generation: int, policy: str) -> MembershipChange:
    """How the crew came to `generation`. Raises RunError when the logs do not show it."""
    logs = {int(path.stem): crew.lines(int(path.stem)) for path in crew.folder.glob("*.log")}
    marks = {(what, number): at_s for what, number, at_s in crew.marks}
    old, new = _steps(logs, generation - 1), _steps(logs, generation)
    if not old or not new:
        raise RunError(f"generation {generation} did not train after generation {generation - 1}; look at its logs")
    ended_s = max(steps[-1]["at_s"] for steps in old.values())
    began_s = marks.get(("kill", generation), ended_s)
    going_on = {device: logs[device] for device in new}
    moments = [_end_s(going_on, marks, part, generation) for part in PARTS[policy]]
    parts_s = {}
    for part, moment_s in zip(PARTS[policy], moments, strict=True):
        parts_s[part] = max(moment_s - began_s, 0.0)
        began_s = max(began_s, moment_s)
    order_s = marks.get(("order", generation), ended_s)
    ready_s = _end_s(logs, marks, FRAMEWORK, generation) if policy == "live" else order_s
    steady_s = _steady_s(new)
    return MembershipChange(
        policy=policy,
        before=len(old),
        after=len(new),
        parts_s=parts_s,
        beside_s=ready_s - order_s,
        slowed_s=_slowed_s(old, order_s) if policy == "live" else 0.0,
        first_s=max(max(steps[0]["at_s"] for steps in new.values()) - began_s - steady_s, 0.0),
        step_s=steady_s,
    )


def samples_seen(crew: ElasticProcessGroup, steps: int) -> dict[int, list[int]]:
    """The samples that the members computed in each of the first `steps` steps, sorted."""
    found: dict[int, list[int]] = {step: [] for step in range(steps)}
    for path in crew.folder.glob("*.log"):
        for line in crew.lines(int(path.stem)):
            if line["what"] == "step" and line["step"] < steps:
                found[line["step"]] += line["samples"]
    return {step: sorted(samples) for step, samples in found.items()}


def losses(crew: ElasticProcessGroup) -> list[float]:
    """The loss of every step, from whoever logged it first. Raises RunError when a step is missing."""
    found: dict[int, float] = {}
    for path in sorted(crew.folder.glob("*.log")):
        for line in crew.lines(int(path.stem)):
            if line["what"] == "step":
                found.setdefault(line["step"], line["loss"])
    if sorted(found) != list(range(len(found))):
        raise RunError(f"of {max(found) + 1} steps only {len(found)} were logged")
    return [found[step] for step in range(len(found))]


def _steps(logs: Mapping[int, Sequence[Line]], generation: int) -> dict[int, list[Line]]:
    """The steps of a generation, by device."""
    chosen = {
        device: [line for line in lines if line["what"] == "step" and line["generation"] == generation]
        for device, lines in logs.items()
    }
    return {device: steps for device, steps in chosen.items() if steps}


def _end_s(
    logs: Mapping[int, Sequence[Line]], marks: Mapping[tuple[str, int], float], part: str, generation: int
) -> float:
    """When the last of those that did it had ended a part."""
    if (part, generation) in marks:
        return marks[part, generation]
    return max(
        float(line["at_s"])
        for lines in logs.values()
        for line in lines
        if line["what"] == part and line["generation"] == generation
    )


def _steady_s(steps: Mapping[int, Sequence[Line]]) -> float:
    """The median step, the first one left out."""
    return float(statistics.median(line["at_s"] - line["began_s"] for lines in steps.values() for line in lines[1:]))


def _slowed_s(steps: Mapping[int, Sequence[Line]], order_s: float) -> float:
    """What steps after the order took longer than as many like those before it, on the first member."""
    lines = steps[min(steps)]
    before = [line["at_s"] - line["began_s"] for line in lines[1:] if line["at_s"] <= order_s]
    after = [line["at_s"] - line["began_s"] for line in lines if line["at_s"] > order_s]
    return max(sum(after) - len(after) * statistics.mean(before), 0.0) if before else 0.0
