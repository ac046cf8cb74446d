"""What a membership change of an elastic process group took: the parts of the pause, from the ranks' logs.

A part ends when the last rank has ended it, so the parts of a pause add up to it: from the end of the last step before
to the moment when every rank can begin the next one.
"""

from __future__ import annotations

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

Logs = Mapping[int, Sequence[Line]]
"""What each device logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """A membership change as it was measured: from `before` to `after` devices under a policy, in seconds.

    parts_s: of the pause. ended_s: when it was over, by CLOCK_MONOTONIC.
    """

    policy: str
    before: int
    after: int
    parts_s: Mapping[str, float]
    ended_s: float

    @property
    def pause_s(self) -> float:
        """Seconds without training: the sum of the parts."""
        return sum(self.parts_s.values())


def measured_change(group: ElasticProcessGroup, generation: int, policy: str) -> MembershipChange:
    """How the group came to `generation`. Raises RunError when the logs do not show it."""
    logs = logs_of(group)
    old, new = steps_of(logs, generation - 1), steps_of(logs, generation)
    if not old or not new:
        raise RunError(f"generation {generation} did not train after generation {generation - 1}; look at its logs")
    marks = {(what, number): at_s for what, number, at_s in group.marks}
    began_s = marks.get(("kill", generation), last_step_s(old))
    parts_s = {}
    for part in PARTS[policy]:
        moment_s = marks.get((part, generation)) or end_s({device: logs[device] for device in new}, part, generation)
        parts_s[part] = max(moment_s - began_s, 0.0)
        began_s = max(began_s, moment_s)
    return MembershipChange(policy=policy, before=len(old), after=len(new), parts_s=parts_s, ended_s=began_s)


def logs_of(group: ElasticProcessGroup) -> Logs:
    """What the devices of a group have logged so far."""
    return {int(path.stem): group.lines(int(path.stem)) for path in group.folder.glob("*.log")}


def steps_of(logs: Logs, generation: int) -> Logs:
    """The steps of a generation, of the devices that made some."""
    by_device = {
        device: [line for line in lines if line["what"] == "step" and line["generation"] == generation]
        for device, lines in logs.items()
    }
    return {device: steps for device, steps in by_device.items() if steps}


def last_step_s(steps: Logs) -> float:
    """When the last of some steps ended, in seconds of CLOCK_MONOTONIC."""
    return max(float(lines[-1]["at_s"]) for lines in steps.values())


def end_s(logs: Logs, part: str, generation: int) -> float:
    """When the last device ended a part, in seconds of CLOCK_MONOTONIC."""
    lines = (line for lines in logs.values() for line in lines if line["what"] == part)
    return max(float(line["at_s"]) for line in lines if line["generation"] == generation)
