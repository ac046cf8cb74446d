"""Where the step of one device goes, by cause: what it computes in each pass, and why it does not compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.report.resource_use import DeviceUse
from simulator.taskgraph import Kind, TaskGraph
from simulator.timeline import Timeline

COMPUTED: Mapping[str, tuple[Kind, ...]] = {
    "forward": (Kind.FORWARD,),
    "backward": (Kind.BACKWARD, Kind.WEIGHT, Kind.RECOMPUTE),
    "update": (Kind.UPDATE,),
}
"""What a device computes by cause; what backward passes compute again is theirs."""
EXPOSED, WAITING = "exposed communication", "waiting"  # the latter for launches, too
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
