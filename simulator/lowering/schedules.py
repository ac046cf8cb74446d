"""In which order a device runs the forward and backward passes of its micro-batches.

A schedule is a function of (devices, device, micro-batches, chunks) that yields the instructions of that device, in
order; the device waits for the next one even when a later one is ready, as the runtimes do. `device` counts along
the pipeline. Each is drawn below, one column per unit of time; digits are forwards, letters (a = 0) backwards.

A device holds `chunks` stages, numbered along the network. Where a schedule splits the backward pass, BACKWARD makes
the gradients of the inputs, for which the stage before waits, and WEIGHT those of the parameters (drawn as capital
letters), which fill bubbles.

"dataflow" has no fixed order: a device runs what is ready, the oldest micro-batch first and backward before
the forward of a younger one. It serves every plan, also those that have no stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from simulator.errors import InputError, UnknownNameError, require
from simulator.plan import Plan
from simulator.taskgraph import Kind
from simulator.workload import Profile


class Instruction(NamedTuple):
    """What to run, of which micro-batch, of which of the device's stages."""

    kind: Kind
    microbatch: int
    chunk: int = 0


Schedule = Callable[[int, int, int, int], Iterator[Instruction]]


def gpipe(devices: int, device: int, microbatches: int, chunks: int = 1) -> Iterator[Instruction]:
    """All forwards, then all backwards (Huang et al., NeurIPS 2019), oldest first as torch runs them.

    stage 0  0123    abcd
    stage 1   0123  abcd
    stage 2    0123abcd

    The bubble is (p-1)/(m+p-1) of the time when stages are equal and links free.
    """
    for m in range(microbatches):
        yield Instruction(Kind.FORWARD, m)
    for m in range(microbatches):
        yield Instruction(Kind.BACKWARD, m)


def one_forward_one_backward(devices: int, device: int, microbatches: int, chunks: int = 1) -> Iterator[Instruction]:
    """Warm up with at most p - device forwards, then alternate (Narayanan et al., SC 2021, "1F1B-flush").

    stage 0  012  a3b c d
    stage 1   01 a2b3c d
    stage 2    0a1b2c3d

    The bubble is GPipe's, but a stage keeps the activations of at most p - device micro-batches.
    """
    warm = min(devices - device, microbatches)
    for m in range(warm):
        yield Instruction(Kind.FORWARD, m)
    for m in range(microbatches):
        yield Instruction(Kind.BACKWARD, m)
        if m + warm < microbatches:
            yield Instruction(Kind.FORWARD, m + warm)


def pipedream(devices: int, device: int, microbatches: int, chunks: int = 1) -> Iterator[Instruction]:
    """1F1B without a flush: each backward pass is followed by an update (Narayanan et al., SOSP 2019, section 3.2).

    stage 0  012  aU3bU cU dU
    stage 1   01 aU2bU3cU dU
    stage 2    0aU1bU2cU3dU

    Micro-batches are whole mini-batches: however many follow one another, the pipeline fills and drains once. A
    device stashes p - device versions of its weights.
    """
    return one_forward_one_backward(devices, device, microbatches)


def interleaved(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """1F1B over several stages per device, stage s on device s mod p (Narayanan et al., SC 2021, section 2.2).

    Here 2 devices, of 2 stages each, and 4 micro-batches:

    stage 0  01012a3b2a3b c dcd
    stage 1   010a1b2a3b2c3dcd

    Micro-batches go in rounds of p, each through the first chunk, then the second. The bubble is 1/chunks of 1F1B's.
    """
    turn = _Turn(devices, microbatches, chunks)
    warm = min((chunks - 1) * turn.block + 2 * (devices - 1 - device), turn.total)
    for count in range(turn.total + warm):
        if count < turn.total:
            yield turn.forward(count)
        if count >= warm:
            yield turn.backward(count - warm)


def zero_bubble(devices: int, device: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """Interleaved 1F1B whose weight gradients wait for bubbles (Qi et al., ICLR 2024, ZB-H1).

    stage 0  012  AA3BBCCDD
    stage 1   01 a2bA3cBdCD
    stage 2    0a1b2cA3dBCD

    The first stage needs no gradient of its input, so all of its backward pass is weight gradient here. As in torch's
    InterleavedZeroBubble, device i puts off the weight gradients of i passes, so that input gradients leave sooner.
    """
    turn = _Turn(devices, microbatches, chunks)
    warm = min((chunks - 1) * turn.block + devices - 1 - device, turn.total)
    for count in range(turn.total + warm):
        if count < turn.total:
            yield turn.forward(count)
        if count >= warm:
            yield turn.backward(count - warm)
            if count - warm >= device:
                yield turn.weight(count - warm - device)
    for late in range(max(turn.total - device, 0), turn.total):
        yield turn.weight(late)


class _Turn:
    """Whose turn it is when micro-batches go in rounds through a device's chunks."""

    def __init__(self, devices: int, microbatches: int, chunks: int) -> None:
        rounds = max(1, microbatches // devices)
        rule = f"{devices} devices take them in {rounds} equal rounds; use a multiple of {rounds}"
        require(microbatches % rounds == 0, "microbatches", microbatches, rule)
        self.block, self.chunks, self.total = microbatches // rounds, chunks, microbatches * chunks

    def forward(self, count: int) -> Instruction:
        """The forward pass that comes after `count` others."""
        return Instruction(Kind.FORWARD, self._microbatch(count), count // self.block % self.chunks)

    def backward(self, count: int) -> Instruction:
        return Instruction(Kind.BACKWARD, self._microbatch(count), self.chunks - 1 - count // self.block % self.chunks)

    def weight(self, count: int) -> Instruction:
        return self.backward(count)._replace(kind=Kind.WEIGHT)

    def _microbatch(self, count: int) -> int:
        return count % self.block + self.block * (count // (self.block * self.chunks))


SCHEDULES: Mapping[str, Schedule | None] = {
    "dataflow": None,
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "pipedream": pipedream,
    "interleaved": interleaved,
    "zero-bubble": zero_bubble,
}
CHUNKED = frozenset({"interleaved", "zero-bubble"})
"""Those in which a device may hold several stages."""
SPLIT = frozenset({"zero-bubble"})
"""Those that split the backward pass."""
STASHING = frozenset({"pipedream"})
"""Those that update after every backward pass and stash weights."""


def schedule(name: str) -> Schedule | None:
    """The schedule called `name`, None for dataflow. Raises UnknownNameError."""
    if name not in SCHEDULES:
        raise UnknownNameError.of("schedule", name, SCHEDULES)
    return SCHEDULES[name]


def stages(profile: Profile, plan: Plan) -> list[list[int]]:
    """The layer positions of each stage, in order along the network.

    A stage is all layers with the same set of devices or, in a schedule of several stages per device, a run of them
    in topological order. Raises InputError when the device sets of two stages overlap, or when devices hold unequally
    many, because then no fixed order exists.
    """
    sets = [plan.placements[layer.name].device_set for layer in profile.layers]
    owner: dict[int, tuple[int, ...]] = {}
    for layer, devices in zip(profile.layers, sets, strict=True):
        for device in devices:
            if owner.setdefault(device, devices) != devices:
                raise InputError(
                    f"schedule {plan.schedule!r} needs stages on separate devices, but device {device} is shared "
                    f"by devices {owner[device]} and {devices} (layer {layer.name!r}); use schedule 'dataflow'"
                )
    if plan.schedule not in CHUNKED:
        return [[i for i, other in enumerate(sets) if other == devices] for devices in dict.fromkeys(sets)]
    runs = [[i for i, _ in run] for _, run in groupby(enumerate(sets), key=lambda entry: entry[1])]
    _check_chunks(plan, [sets[run[0]] for run in runs])
    return runs


def _check_chunks(plan: Plan, homes: list[tuple[int, ...]]) -> None:
    """Raise InputError unless the stages go round the devices, each as often as the others."""
    places = list(dict.fromkeys(homes))
    if len(homes) % len(places) or homes != places * (len(homes) // len(places)):
        raise InputError(f"schedule {plan.schedule!r} needs stages that go round all devices, but they are on {homes}")
