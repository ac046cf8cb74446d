"""What the collaborators of the reference engine know of the run that they are part of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from simpy import Environment
from simpy.events import Timeout

from simulator.engine.columns import Columns
from simulator.network.max_min import ActivityClass, Sharing


@dataclass(frozen=True, slots=True)
class RunContext:
    """Clock, shared capacities and times of one run; wake_network and complete are the loop's."""

    columns: Columns
    environment: Environment
    sharing: Sharing
    classes: list[ActivityClass]
    start_s: list[float]
    end_s: list[float]
    wake_network: Callable[[], None]

    @classmethod
    def of(cls, columns: Columns, wake_network: Callable[[], None]) -> RunContext:
        """The state before anything has run."""
        times = [inf] * len(columns), [inf] * len(columns)
        sharing = Sharing(columns.capacity.tolist())
        return cls(columns, Environment(), sharing, _activity_classes(columns), *times, wake_network)

    @property
    def now_s(self) -> float:
        return float(self.environment.now)

    def join(self, task: int) -> None:
        """Start the activity of `task`."""
        kind = self.classes[self.columns.activity_class[task]]
        self.sharing.join(kind, task, float(self.columns.work[task]), self.now_s)

    def call_after(self, delay_s: float, step: Callable[[int], None], task: int) -> None:
        """Call `step(task)` after `delay_s`, at the same instant but later where it is 0."""
        Timeout(self.environment, delay_s).callbacks.append(lambda _: step(task))


def _activity_classes(columns: Columns) -> list[ActivityClass]:
    start, caps = columns.class_start.tolist(), columns.class_cap.tolist()
    uses = list(zip(columns.resource.tolist(), columns.weight.tolist(), strict=True))
    return [ActivityClass(dict(uses[start[c] : start[c + 1]]), cap=cap) for c, cap in enumerate(caps)]
