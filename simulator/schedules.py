"""In which order a device runs the forward and backward passes of its micro-batches.

A schedule is a function of (stages, stage, micro-batches) that yields the instructions of that stage, in
order; the device waits for the next one even when a later one is ready, as the runtimes do. Each is drawn
below for 3 stages and 4 micro-batches, one unit per pass: digits are forwards, letters (a = 0) backwards.

"dataflow" has no fixed order: a device runs what is ready, the oldest micro-batch first and backward before
the forward of a younger one. It serves every plan, also those that have no stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from simulator.errors import InputError, UnknownNameError
from simulator.plan import Plan
from simulator.taskgraph import Kind
from simulator.workload import Profile

Instruction = tuple[Kind, int]
"""What to run, of which micro-batch."""
Schedule = Callable[[int, int, int], Iterator[Instruction]]


def gpipe(stages: int, stage: int, microbatches: int) -> Iterator[Instruction]:
    """All forwards, then all backwards (Huang et al., NeurIPS 2019), oldest first as torch runs them.

    stage 0  0123    abcd
    stage 1   0123  abcd
    stage 2    0123abcd

    The bubble is (p-1)/(m+p-1) of the time when stages are equal and links free.
    """
    for m in range(microbatches):
        yield Kind.FORWARD, m
    for m in range(microbatches):
        yield Kind.BACKWARD, m


def one_forward_one_backward(stages: int, stage: int, microbatches: int) -> Iterator[Instruction]:
    """Warm up with at most p - stage forwards, then alternate (Narayanan et al., SC 2021, "1F1B-flush").

    stage 0  012  a3b c d
    stage 1   01 a2b3c d
    stage 2    0a1b2c3d

    The bubble is GPipe's, but a stage keeps the activations of at most p - stage micro-batches.
    """
    warm = min(stages - stage, microbatches)
    for m in range(warm):
        yield Kind.FORWARD, m
    for m in range(microbatches):
        yield Kind.BACKWARD, m
        if m + warm < microbatches:
            yield Kind.FORWARD, m + warm


SCHEDULES: Mapping[str, Schedule | None] = {"dataflow": None, "gpipe": gpipe, "1f1b": one_forward_one_backward}


def schedule(name: str) -> Schedule | None:
    """The schedule called `name`, None for dataflow. Raises UnknownNameError."""
    if name not in SCHEDULES:
        raise UnknownNameError.of("schedule", name, SCHEDULES)
    return SCHEDULES[name]


def stages(profile: Profile, plan: Plan) -> list[list[int]]:
    """The layer positions of each stage: layers with the same set of devices, in order of first appearance.

    Raises InputError when the device sets of two stages overlap, because then no fixed order exists.
    """
    found: dict[tuple[int, ...], list[int]] = {}
    owner: dict[int, tuple[int, ...]] = {}
    for position, layer in enumerate(profile.layers):
        devices = plan.placements[layer.name].device_set
        found.setdefault(devices, []).append(position)
        for device in devices:
            if owner.setdefault(device, devices) != devices:
                raise InputError(
                    f"schedule {plan.schedule!r} needs stages on separate devices, but device {device} is shared "
                    f"by devices {owner[device]} and {devices} (layer {layer.name!r}); use schedule 'dataflow'"
                )
    return list(found.values())
