"""Rendezvous: a message of a pipeline moves only after its receive was posted, as gloo and NCCL do under torch.

All messages from one pass to another leave together when the pass has ended, however early their layers have, and their
receives are posted together: they are one batch, which waits for one latency and goes as one message of all its bytes
would (`Route.ahead_bytes`). That a receive is posted is a task of its own (READY), a message of no bytes from the
receiver to the sender; the message waits for it, and those of a batch are one, too. READY messages and payloads from
one device to another go one after the other, so that a READY waits behind a payload that its own side sends. Of two
payloads in opposite directions, that of the device which posts last goes first:

    device 0   posts: send a, receive b                      b b b b>
    device 1                             posts: send b, receive a
    0 -> 1     READY of b >                                         a a a a>
    1 -> 0                               b b b b> READY of a >

When a receive is posted depends on the schedule (`Schedule.receives`). GPipe and 1F1B post it just before the pass that
reads the message. 1F1B moreover goes on only when the send of its previous pass has completed, and GPipe's first
backward pass waits for all sends of its forward passes. A send completes once its receive is posted: from then on the
message is with the kernel, which buffers a few megabytes. In torch's interleaved and zero-bubble schedules a receive is
posted as early as its sender's turn has come when passes are dealt out in rounds, one to each device that has what it
needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.lowering.schedules import Schedule
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.taskgraph import Ints, Kind


def add_rendezvous(builder: GraphBuilder, orders: Sequence[Sequence[Ints]], schedule: Schedule) -> None:
    """Let messages wait until their receives are posted, and passes for their sends.

    orders: of each device that runs passes, the tasks of each of its passes.
    """
    rendezvous = _Rendezvous(builder, orders)
    ready = rendezvous.ready
    rendezvous.leave_together()
    posts = rendezvous.posted_by_rounds() if schedule.receives == "early" else rendezvous.posted_before_use()
    for message, (rank, last_pass) in posts.items():
        if last_pass >= 0:
            builder.depend(ready[message], orders[rank][last_pass][-1])
    for rank in range(len(orders)):
        if schedule.receives == "joint":
            rendezvous.wait_for_sends(rank)
        elif schedule.receives == "late":
            rendezvous.flush_before_backward(rank)


@dataclass(frozen=True)
class _Rendezvous:
    """The messages between passes. Devices are numbered by their place in `orders`, passes by theirs on the device."""

    builder: GraphBuilder
    orders: Sequence[Sequence[Ints]]

    @cached_property
    def ready(self) -> dict[int, int]:
        """By message, its READY task; they are appended when this is first read."""
        builder = self.builder
        messages = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(m for sent in self.sent for m in sent)]))
        owner = {name: builder.column(name)[messages] for name in ("layer", "microbatch", "shard", "priority")}
        device_of_task = np.full(len(builder), -1)
        for order in self.orders:
            device_of_task[np.concatenate(order)] = builder.column("device")[order[0][0]]
        sender = np.full(len(builder), -1)
        for order, sent in zip(self.orders, self.sent, strict=True):
            for tasks, messages_of_pass in zip(order, sent, strict=True):
                sender[messages_of_pass] = device_of_task[tasks[0]]
        back = builder.message_routes(builder.column("device")[messages], sender[messages])
        tasks = builder.add(Kind.READY, len(messages), device=sender[messages], route=back, **owner)
        builder.depend(messages, tasks)
        return dict(zip(messages.tolist(), tasks.tolist(), strict=True))

    @cached_property
    def batches(self) -> list[list[int]]:
        """The messages from each pass to each pass of another device, in the order of their first."""
        reader = self.posted_before_use()
        batches: dict[tuple[int, ...], list[int]] = {}
        for rank, sent in enumerate(self.sent):
            for number, messages in enumerate(sent):
                for message in messages.tolist():
                    batches.setdefault((rank, number, *reader[message]), []).append(message)
        return sorted(batches.values())

    def leave_together(self) -> None:
        """Let every message wait for the end of the pass that makes it and for all READY of its batch; it, and its own
        READY, go behind those before it there."""
        builder, ready = self.builder, self.ready
        for order, sent in zip(self.orders, self.sent, strict=True):
            for tasks, messages in zip(order, sent, strict=True):
                builder.depend(messages, tasks[-1])
        size, route, routes = builder.column("bytes"), builder.column("route"), builder.routes
        for batch in self.batches:
            builder.depend(batch[:-1], ready[batch[-1]])
            for together in (batch, [ready[message] for message in batch]):
                for task, ahead_bytes in zip(together[1:], np.cumsum(size[together]).tolist(), strict=False):
                    route[task] = builder.route(replace(routes[route[task]], ahead_bytes=ahead_bytes))

    def posted_before_use(self) -> dict[int, tuple[int, int]]:
        """By message, the device that receives it, and the pass after which it posts: that before the one which
        reads."""
        return {
            message: (rank, number - 1)
            for rank, read in enumerate(self.read)
            for number, messages in enumerate(read)
            for message in messages.tolist()
        }

    def posted_by_rounds(self) -> dict[int, tuple[int, int]]:
        """The same, where passes are dealt out in rounds and a sender's turn lets its receiver post."""
        receiver = {message: rank for message, (rank, _) in self.posted_before_use().items()}
        dealt = [0] * len(self.orders)
        posts: dict[int, tuple[int, int]] = {}
        remaining = sum(map(len, self.orders))
        while remaining:
            for rank, read in enumerate(self.read):
                number = dealt[rank]
                if number < len(read) and all(message in posts for message in read[number].tolist()):
                    dealt[rank] += 1
                    remaining -= 1
                    for message in self.sent[rank][number].tolist():
                        posts[message] = receiver[message], dealt[receiver[message]] - 1
        return posts

    def wait_for_sends(self, rank: int) -> None:
        """A pass waits until the sends of the pass before it complete; a second forward pass in a row does not."""
        order, kind = self.orders[rank], self.builder.column("kind")
        for number in range(1, len(order)):
            both_forward = kind[order[number][0]] == kind[order[number - 1][0]] == Kind.FORWARD
            after = number + both_forward
            if after < len(order):
                ready = [self.ready[message] for message in self.sent[rank][number - 1].tolist()]
                self.builder.depend(order[after][0], ready)

    def flush_before_backward(self, rank: int) -> None:
        """The first backward pass waits until the sends of all forward passes complete."""
        order, kind = self.orders[rank], self.builder.column("kind")
        for number in range(1, len(order)):
            if kind[order[number][0]] != Kind.FORWARD and kind[order[number - 1][0]] == Kind.FORWARD:
                for sent in self.sent[rank][:number]:
                    self.builder.depend(order[number][0], [self.ready[message] for message in sent.tolist()])

    @cached_property
    def read(self) -> list[list[Ints]]:
        """By device and pass, the messages that it waits for."""
        later, earlier = self._edges
        return [self._by_pass(order, later, earlier) for order in self.orders]

    @cached_property
    def sent(self) -> list[list[Ints]]:
        """By device and pass, the messages that it sends."""
        later, earlier = self._edges
        return [self._by_pass(order, earlier, later) for order in self.orders]

    @cached_property
    def _edges(self) -> tuple[Ints, Ints]:
        return self.builder.edges()

    def _by_pass(self, order: Sequence[Ints], tasks: Ints, others: Ints) -> list[Ints]:
        """The messages among `others`, by the pass that the task beside each belongs to."""
        pass_of_task = np.full(len(self.builder), -1)
        for number, tasks_of_pass in enumerate(order):
            pass_of_task[tasks_of_pass] = number
        counts = (pass_of_task[tasks] >= 0) & (self.builder.column("route")[others] >= 0)
        pairs = np.unique(np.stack([pass_of_task[tasks[counts]], others[counts]]), axis=1)  # (2, pairs)
        return np.split(pairs[1], np.searchsorted(pairs[0], np.arange(1, len(order))))
