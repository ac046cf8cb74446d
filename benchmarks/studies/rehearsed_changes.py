"""Membership changes with what they take beside the pause, and a loss of which not even connections tell."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from types import TracebackType

from simulator.elastic.reconfiguration import FRAMEWORK
from traces.elastic.process_group import (
    ElasticProcessGroup,
    Logs,
    MembershipChange,
    end_s,
    last_step_s,
    logs_of,
    measured_change,
    steps_of,
)
from traces.lab.namespaces import batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedChange(MembershipChange):
    """A membership change with what it took beside its pause, in seconds.

    beside_s: from the order to the last joiner's readiness. slowed_s: by how much steps beside that took longer than
    steps before it. first_s: by how much the first step after the pause took longer than later ones. step_s: the median
    of the later ones.
    """

    beside_s: float
    slowed_s: float
    first_s: float
    step_s: float

    @property
    def lost_s(self) -> float:
        """Seconds of the pause, and those that steps around it took longer than steady ones."""
        return self.pause_s + self.slowed_s + self.first_s


class CutGroup(ElasticProcessGroup):
    """An elastic process group in a lab that loses a device by its link: not even its connections are closed."""

    _cut: int | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        super().__exit__(kind, error, at)
        if self._cut is not None:
            self._set_link(self._cut, "up")

    def kill(self, device: int) -> None:
        self._cut = device
        self._set_link(device, "down")
        super().kill(device)

    def _set_link(self, device: int, state: str) -> None:
        if self._lab is not None:  # over loopback there is no link
            batch("ip", self._lab.namespace(device), [f"link set {self._lab.interface} {state}"])


def rehearsed_change(group: ElasticProcessGroup, generation: int, policy: str) -> RehearsedChange:
    """How the group came to `generation`. Raises RunError when the logs do not show it."""
    change, logs, live = measured_change(group, generation, policy), logs_of(group), policy == "live"
    old, new = steps_of(logs, generation - 1), steps_of(logs, generation)
    ordered = [at_s for what, number, at_s in group.marks if (what, number) == ("order", generation)]
    order_s = ordered[-1] if ordered else last_step_s(old)
    steady_s = statistics.median(line["at_s"] - line["began_s"] for lines in new.values() for line in lines[1:])
    return RehearsedChange(
        **asdict(change),
        beside_s=end_s(logs, FRAMEWORK, generation) - order_s if live else 0.0,
        slowed_s=_slowed_s(old, order_s) if live else 0.0,
        first_s=max(max(steps[0]["at_s"] for steps in new.values()) - change.ended_s - steady_s, 0.0),
        step_s=float(steady_s),
    )


def _slowed_s(steps: Logs, order_s: float) -> float:
    """What steps after the order took longer than as many like those before it, in seconds, on the first device."""
    lines = steps[min(steps)]
    before = [line["at_s"] - line["began_s"] for line in lines[1:] if line["at_s"] <= order_s]
    after = [line["at_s"] - line["began_s"] for line in lines if line["at_s"] > order_s]
    return max(sum(after) - len(after) * statistics.mean(before), 0.0) if before else 0.0
