"""Pipelines whose messages wait for their receives, drawn by hand: two stages of 1 and 4 s forward, twice that back."""

from __future__ import annotations

import pytest
from small_networks import BATCH, chain

from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.runtime import Runtime
from simulator.taskgraph import Kind

Spans = dict[tuple[Kind, int], list[tuple[float, float]]]


def spans(schedule: str, *, rendezvous: bool = True) -> Spans:
    """By kind and device, (start, end) of three micro-batches; a message between the stages takes 2 s."""
    profile = chain([3.0 * BATCH, 12.0 * BATCH])
    wire = Wire(bandwidth_bytes_per_s=profile.layers[0].output_bytes / BATCH / 2, latency_s=0.0)
    stages = {name: Sharding(degrees=(1, 1, 1, 1), devices=(device,)) for device, name in enumerate("ab")}
    plan = Plan(model="small", batch_size=3, microbatches=3, schedule=schedule, placements=stages)
    done = run(profile, flat_switch(2, wire), plan, runtime=Runtime(rendezvous=rendezvous))
    drawn: Spans = {}
    for task, kind in enumerate(map(Kind, done.graph.kind.tolist())):
        span = float(done.timeline.start_s[task]), float(done.timeline.end_s[task])
        drawn.setdefault((kind, int(done.graph.device[task])), []).append(span)
    return {key: sorted(each) for key, each in drawn.items()}


DRAWN: dict[str, Spans] = {
    "gpipe": {  # forward passes of stage 0 wait for nothing; every later receive waits for the pass before its own
        (Kind.FORWARD, 0): [(0, 1), (1, 2), (2, 3)],
        (Kind.ACTIVATION, 1): [(1, 3), (7, 9), (13, 15)],
        (Kind.FORWARD, 1): [(3, 7), (9, 13), (15, 19)],
        (Kind.BACKWARD, 1): [(19, 27), (27, 35), (35, 43)],
        (Kind.GRADIENT, 0): [(27, 29), (35, 37), (43, 45)],
        (Kind.BACKWARD, 0): [(29, 31), (37, 39), (45, 47)],
    },
    "1f1b": {  # an activation and a gradient that meet take turns, and a pass waits for the sends of the one before
        (Kind.FORWARD, 0): [(0, 1), (1, 2), (19, 20)],
        (Kind.FORWARD, 1): [(3, 7), (19, 23), (35, 39)],
        (Kind.BACKWARD, 1): [(7, 15), (23, 31), (39, 47)],
        (Kind.GRADIENT, 0): [(15, 17), (31, 33), (47, 49)],
        (Kind.ACTIVATION, 1): [(1, 3), (17, 19), (33, 35)],
        (Kind.BACKWARD, 0): [(17, 19), (33, 35), (49, 51)],
    },
}


@pytest.mark.parametrize("schedule", DRAWN)
def test_messages_wait_for_their_receives(schedule: str) -> None:
    made = spans(schedule)
    for key, drawn in DRAWN[schedule].items():
        assert made[key] == [pytest.approx(span) for span in drawn], key


def test_without_rendezvous_messages_leave_when_they_are_ready() -> None:
    """They share the link: the first has half a second's bytes left when the third joins."""
    [first, second, third] = spans("gpipe", rendezvous=False)[Kind.ACTIVATION, 1]
    assert (first, second[0], third) == (pytest.approx((1, 4.5)), pytest.approx(2), pytest.approx((3, 7)))


def test_the_first_backward_pass_waits_until_all_receives_are_posted() -> None:
    """Stage 1 posts the last one after its second pass, at 13 s; nothing of stage 0's forward passes waits for it."""
    made = spans("gpipe")
    assert made[Kind.FORWARD, 0][-1][1] < made[Kind.READY, 0][-1][0] == 13 <= made[Kind.BACKWARD, 0][0][0]
