"""What a membership change of an elastic process group took: the parts of the pause, from the ranks' logs.

A part ends when the last rank has ended it, so the parts of a pause add up to it: from the end of the last step before
to the moment when every rank can begin the next one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.elastic.reconfiguration import DETECT, FRAMEWORK, GROUPS, LAUNCH, LEAVE, MOVE, READ, STOP, WRITE
from simulator.errors import RunError
from traces.elastic.process_group import ElasticProcessGroup, Line

PARTS = {
    "live": (LEAVE, GROUPS, MOVE),
    "shrink": (LEAVE, GROUPS, MOVE),
    "recover": (DETECT, LEAVE, GROUPS, MOVE),
    "restart": (WRITE, STOP, LAUNCH, FRAMEWORK, GROUPS, READ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """A membership change as it was measured: from `before` to `after` devices under a policy, in seconds.

    parts_s: of the pause. beside_s: from the order to the last joiner's readiness. slowed_s: by how much steps beside
    that took longer than steps before it. first_s: by how much the first step after the pause took longer than later
    ones. step_s: the median of the later ones.
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
        """Seconds without training: the sum of the parts."""
        return sum(self.parts_s.values())

    @property
    def lost_s(self) -> float:
        """Seconds of the pause, and those that steps around it took longer than steady ones."""
        return self.pause_s + self.slowed_s + self.first_s


def measured_change(group: ElasticProcessGroup, generation: int, policy: str) -> MembershipChange:
    """How the group came to `generation`. Raises RunError when the logs do not show it."""
    logs = {int(path.stem): group.lines(int(path.stem)) for path in group.folder.glob("*.log")}
    marks = {(what, number): at_s for what, number, at_s in group.marks}
    old, new = _steps(logs, generation - 1), _steps(logs, generation)
    if not old or not new:
        raise RunError(f"generation {generation} did not train after generation {generation - 1}; look at its logs")
    ended_s = max(steps[-1]["at_s"] for steps in old.values())
    began_s = marks.get(("kill", generation), ended_s)
    remaining = {device: logs[device] for device in new}
    moments = [_end_s(remaining, marks, part, generation) for part in PARTS[policy]]
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


def _steps(logs: Mapping[int, Sequence[Line]], generation: int) -> dict[int, list[Line]]:
    """The steps of a generation, by device."""
    by_device = {
        device: [line for line in lines if line["what"] == "step" and line["generation"] == generation]
        for device, lines in logs.items()
    }
    return {device: steps for device, steps in by_device.items() if steps}


def _end_s(
    logs: Mapping[int, Sequence[Line]], marks: Mapping[tuple[str, int], float], part: str, generation: int
) -> float:
    """When the last rank ended a part, in seconds of CLOCK_MONOTONIC."""
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
    """What steps after the order took longer than as many like those before it, in seconds, on the first device."""
    lines = steps[min(steps)]
    before = [line["at_s"] - line["began_s"] for line in lines[1:] if line["at_s"] <= order_s]
    after = [line["at_s"] - line["began_s"] for line in lines if line["at_s"] > order_s]
    return max(sum(after) - len(after) * statistics.mean(before), 0.0) if before else 0.0
