"""Pipelines whose stages meet for each message, as torch's do: gloo and NCCL move nothing until both ends ask.

The receiver's word that it is ready is a task of its own (READY), of no bytes, from the receiver to the sender; the
message waits for it. Words and messages from one device to another go one after the other, so that a word waits behind
a message that its side sends. Of two messages in opposite directions, that of the device which asks last goes first:

    device 0   asks: send a, receive b                      b b b b>
    device 1                             asks: send b, receive a
    0 -> 1     word for b >                                         a a a a>
    1 -> 0                               b b b b> word for a >

When a device asks to receive depends on the schedule. GPipe and 1F1B ask just before the pass that needs the message.
1F1B moreover goes on only when what it sends is off its hands, and GPipe's first backward pass waits for that of all
that its forward passes send. A message is off its sender's hands when the word for it has come: from then on it is with
the kernel, which takes a few megabytes before they are on the wire. In torch's interleaved and zero-bubble schedules a
device asks as early as its sender's turn has come when passes are dealt out in rounds, one to each device that has what
it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.lowering.graph_builder import GraphBuilder
from simulator.taskgraph import Ints, Kind

LATE, JOINT, EARLY = "late", "joint", "early"
ASKS: Mapping[str, str] = {"gpipe": LATE, "1f1b": JOINT, "interleaved": EARLY, "zero-bubble": EARLY}
"""When a device asks, by schedule: just before a pass, together with what it sends, or in the order of the rounds."""


def add_rendezvous(builder: GraphBuilder, orders: Sequence[Sequence[Ints]], schedule: str) -> None:
    """Let messages wait for their receivers' words, and passes for what was sent; orders: see `Meetings`."""
    meetings = Meetings(builder, orders)
    words = meetings.words
    asked = meetings.early() if ASKS[schedule] == EARLY else meetings.late()
    for message, (place, number) in asked.items():
        if number >= 0:
            builder.depend(words[message], orders[place][number][-1])
    for place in range(len(orders)):
        if ASKS[schedule] == JOINT:
            meetings.wait_for_sends(place)
        elif ASKS[schedule] == LATE:
            meetings.flush_before_backward(place)


@dataclass(frozen=True)
class Meetings:
    """The messages between passes. orders: of each device, the tasks of each of its passes."""

    builder: GraphBuilder
    orders: Sequence[Sequence[Ints]]

    @cached_property
    def words(self) -> dict[int, int]:
        """By message, its READY task, which is appended when this is first asked for."""
        builder = self.builder
        messages = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(m for made in self.made for m in made)]))
        owner = {name: builder.column(name)[messages] for name in ("layer", "microbatch", "shard", "priority")}
        home = np.full(len(builder), -1)
        for order in self.orders:
            home[np.concatenate(order)] = builder.column("device")[order[0][0]]
        sender = np.full(len(builder), -1)
        for order, made in zip(self.orders, self.made, strict=True):
            for tasks, sent in zip(order, made, strict=True):
                sender[sent] = home[tasks[0]]
        back = builder.message_routes(builder.column("device")[messages], sender[messages])
        words = builder.add(Kind.READY, len(messages), device=sender[messages], route=back, **owner)
        builder.depend(messages, words)
        return dict(zip(messages.tolist(), words.tolist(), strict=True))

    def late(self) -> dict[int, tuple[int, int]]:
        """By message, the device that asks for it, and after which pass: that before the one which needs it."""
        return {
            message: (place, k - 1)
            for place, needed in enumerate(self.needed)
            for k, messages in enumerate(needed)
            for message in messages.tolist()
        }

    def early(self) -> dict[int, tuple[int, int]]:
        """As `late`, where passes are dealt out in rounds and a sender's turn lets its receiver ask."""
        reader = {message: place for message, (place, _) in self.late().items()}
        dealt = [0] * len(self.orders)
        found: dict[int, tuple[int, int]] = {}
        left = sum(map(len, self.orders))
        while left:
            for place, needed in enumerate(self.needed):
                k = dealt[place]
                if k < len(needed) and all(message in found for message in needed[k].tolist()):
                    dealt[place] += 1
                    left -= 1
                    for message in self.made[place][k].tolist():
                        found[message] = reader[message], dealt[reader[message]] - 1
        return found

    def wait_for_sends(self, place: int) -> None:
        """A pass waits until what the pass before it sends is off; a second forward pass in a row does not."""
        order, kind = self.orders[place], self.builder.column("kind")
        for k in range(1, len(order)):
            after = k + (kind[order[k][0]] == kind[order[k - 1][0]] == Kind.FORWARD)
            if after < len(order):
                self.builder.depend(order[after][0], [self.words[sent] for sent in self.made[place][k - 1].tolist()])

    def flush_before_backward(self, place: int) -> None:
        """The first backward pass waits until all that the forward passes send is off."""
        order, kind = self.orders[place], self.builder.column("kind")
        for k in range(1, len(order)):
            if kind[order[k][0]] != Kind.FORWARD and kind[order[k - 1][0]] == Kind.FORWARD:
                for made in self.made[place][:k]:
                    self.builder.depend(order[k][0], [self.words[sent] for sent in made.tolist()])

    @cached_property
    def needed(self) -> list[list[Ints]]:
        """By device and pass, the messages that it waits for."""
        later, earlier = self._edges
        return [self._by_pass(order, later, earlier) for order in self.orders]

    @cached_property
    def made(self) -> list[list[Ints]]:
        """By device and pass, the messages that it sends."""
        later, earlier = self._edges
        return [self._by_pass(order, earlier, later) for order in self.orders]

    @cached_property
    def _edges(self) -> tuple[Ints, Ints]:
        return self.builder.edges()

    def _by_pass(self, order: Sequence[Ints], tasks: Ints, others: Ints) -> list[Ints]:
        """The messages among `others`, by the pass that the task beside each belongs to."""
        number = np.full(len(self.builder), -1)
        for k, mine in enumerate(order):
            number[mine] = k
        counts = (number[tasks] >= 0) & (self.builder.column("kind")[others] >= Kind.ACTIVATION)
        pairs = np.unique(np.stack([number[tasks[counts]], others[counts]]), axis=1)
        return np.split(pairs[1], np.searchsorted(pairs[0], np.arange(1, len(order))))
