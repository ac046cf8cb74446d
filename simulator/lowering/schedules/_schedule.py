"""What a schedule is: the order of a device's passes, and the facts that the lowering asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from simulator.errors import require
from simulator.taskgraph import Kind


class Instruction(NamedTuple):
    """What to run, of which micro-batch, of which of the device's stages."""

    kind: Kind
    microbatch: int
    chunk: int = 0


Order = Callable[[int, int, int, int], Iterator[Instruction]]
"""(devices, device, micro-batches, chunks) -> the passes of that device, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """order: None leaves passes to run as soon as they are ready. several_stages: a device may hold more than one;
    turns: it holds two, of which the second is as far from the end of the network as the first from its beginning.

    splits_backward: gradients of inputs and of parameters are passes of their own. stashes_weights: an update follows
    every backward pass, with stashed versions of the weights; double_buffered: with two versions, after as many
    backward passes as there are stages, whose gradients are added up. receives: when torch's runtime posts the receive
    of a message, None where it has no such schedule: "late", just before the pass that reads it; "joint", together with
    what is sent; "early", as soon as the sender's turn has come in the rounds. joins_passes: a forward pass after a
    backward pass is run beside it, a piece of either in turn; experts are pieces of their own.
    """

    name: str
    order: Order | None
    several_stages: bool = False
    turns: bool = False
    splits_backward: bool = False
    stashes_weights: bool = False
    double_buffered: bool = False
    receives: Literal["late", "joint", "early"] | None = None
    joins_passes: bool = False


def round_length(devices: int, microbatches: int) -> int:
    """Micro-batches of a round; they make rounds of equal length where it divides them."""
    return microbatches // max(1, microbatches // devices)


class Rounds:
    """Micro-batches that go in rounds through a device's chunks; the n-th pass of each kind is asked for."""

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
