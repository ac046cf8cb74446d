"""Where the step of one device goes, by cause: what it computes in each pass, and why it does not compute; and a
recorded step beside it in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low

import numpy as np

from simulator.report.interval import StepInterval
from simulator.report.resource_use import DeviceUse
from simulator.taskgraph import Kind, TaskGraph
from simulator.timeline import Timeline
from simulator.units import format_longer, format_time

COMPUTED: Mapping[str, tuple[Kind, ...]] = {
    "forward": (Kind.FORWARD,),
    "backward": (Kind.BACKWARD, Kind.WEIGHT, Kind.RECOMPUTE),
    "update": (Kind.UPDATE,),
}
"""What a device computes by cause; what backward passes compute again is theirs."""
EXPOSED, WAITING = "exposed communication", "waiting"  # the latter for launches, too
NOT_ENOUGH = "not enough"
CAUSES = (*COMPUTED, EXPOSED, WAITING)
"""The causes of a step, whose seconds on one device add up to it."""


def step_causes(graph: TaskGraph, timeline: Timeline, device: int, use: DeviceUse) -> dict[str, float]:
    """Seconds of the step of device number `device` by cause, in the order of CAUSES; `use`: of it, in the report."""
    on_device = (graph.route < 0) & (graph.device == device)
    lasting_s = timeline.end_s - timeline.start_s
    computed = {
        cause: float(lasting_s[on_device & np.isin(graph.kind, kinds)].sum()) for cause, kinds in COMPUTED.items()
    }
    return {**computed, EXPOSED: use.exposed_communication_s, WAITING: use.launch_s + use.bubble_s + use.idle_s}


def beside(steps_s: Sequence[float], expected: StepInterval) -> Iterator[str]:
    """Recorded steps beside the one that is expected: the error, and whether they lie in its range."""
    step_s, count = median_low(steps_s), len(steps_s)
    between = f", the median of {count} ({_range(min(steps_s), max(steps_s))})" if count > 1 else ""
    error = f"error of the prediction {expected.middle_s / step_s - 1:+.1%}"
    yield f"recorded {format_time(step_s)}{between}; predicted {format_time(expected.middle_s)}, {error}"
    inside = "inside" if expected.low_s <= step_s <= expected.high_s else "outside"
    yield f"{inside} the 90% range of the prediction, {_range(expected.low_s, expected.high_s)}"


def farthest_off(recorded_s: Mapping[str, float], predicted_s: Mapping[str, float]) -> Iterator[str]:
    """The cause whose recorded seconds are the farthest from the predicted ones."""
    longer = {cause: seconds - predicted_s[cause] for cause, seconds in recorded_s.items()}
    cause = max(longer, key=lambda name: abs(longer[name]))
    share = abs(longer[cause]) / sum(recorded_s.values())
    yield f"farthest off: {cause}, {format_longer(longer[cause])} ({share:.0%} of the recorded step)"
    yield "a collective's kernel also waits for the slowest rank, so traces hold waits there"


def alone(predicted_s: Mapping[str, float], longer_s: float) -> dict[str, str]:
    """By cause how many times as long it alone would have to be for the step to be so much longer."""
    factors = {cause: 1 + longer_s / seconds if seconds else 0.0 for cause, seconds in predicted_s.items()}
    return {cause: f"{factor:.2f}x as long" if factor > 0 else NOT_ENOUGH for cause, factor in factors.items()}


def _range(low_s: float, high_s: float) -> str:
    return f"{format_time(low_s)} to {format_time(high_s)}"
