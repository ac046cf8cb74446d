"""One rank runs its tasks of a graph: computes in the simulator's order, and communicates beside it.

    main thread     ready compute task of the smallest (priority, index) -> run it -> tasks that are ready now
    receivers       have receives posted for the next messages in the predicted order, RECEIVES_AHEAD at a time, the
                    first before the step
    senders         block until a message has left that the main thread began to send, or on a collective of messages
    a thread for each group of devices, which runs the backend's all-reduces of the group in order

Every blocking call has a thread of its own, so nothing polls and a message's end is noted when it arrives. The main
thread begins to send by itself: another would wait for its turn on a core that computes, for up to 4 ms. There is no
deadlock: the predicted order is a linear extension of the graph, and there is a sender for every message.
A device of speed s < 1 waits after each of its tasks until 1/s times its duration has passed.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from torch import Tensor

from simulator.taskgraph import Floats, Kind, turned_round
from traces.runs.executor.gradient_updates import Updates
from traces.runs.executor.rank_shards import Shards
from traces.runs.executor.run_setup import Script, in_order
from traces.runs.executor.tensor_flow import TensorFlow
from traces.runs.executor.transport import Gloo, Swap

RECEIVES_AHEAD = 64

_Event = tuple[int, Tensor | None] | BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """One step as this rank observed it, by task: columns of shape (tasks,).

    start_s, end_s: seconds after the common start, NaN for tasks of other ranks. sent_bytes: of the messages that it
    sent, also in collectives, and of the rows that it gave to the backend's all-reduces. loss: of its shards.
    """

    start_s: Floats
    end_s: Floats
    sent_bytes: Floats
    loss: float

    @property
    def plain(self) -> dict[str, Any]:
        """Its fields as numbers and lists."""
        columns = {"start_s": self.start_s, "end_s": self.end_s, "sent_bytes": self.sent_bytes}
        return {name: column.tolist() for name, column in columns.items()} | {"loss": self.loss}


class Worker:
    """Device `rank` of a run; `doing` is called with a description of every compute task that starts."""

    def __init__(
        self, script: Script, rank: int, transport: Gloo, doing: Callable[[str], None] = lambda task: None
    ) -> None:
        graph = script.graph
        self._script, self._graph, self._rank, self._transport, self._doing = script, graph, rank, transport, doing
        self.shards = Shards(script, rank)
        self._updates = Updates(script, rank, self.shards)
        self._slowness = max(0.0, 1 / script.cluster.devices[rank].speed - 1)
        self._sort_tasks()
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._receivers = ThreadPoolExecutor(RECEIVES_AHEAD)
        self._senders = ThreadPoolExecutor(max(1, len(self._sends) + len(self._collectives)))
        groups = {each.members for each in self._updates.transfers.values() if each.step == "all-reduce"}
        self._groups: dict[tuple[int, ...], Executor] = {group: ThreadPoolExecutor(1) for group in sorted(groups)}

    def close(self) -> None:
        """End the threads, which must be idle."""
        for pool in (self._receivers, self._senders, *self._groups.values()):
            pool.shutdown()

    def step(self, data: Tensor, targets: Tensor) -> RankStep:
        """Train on one batch, the same on all ranks, together with them: data (samples, *input shape), targets
        (samples, ...)."""
        self.shards.begin(data, targets)
        self._updates.begin()
        self._start_s, self._end_s = np.full((2, len(self._graph)), np.nan)
        self._waits = self._wait_counts.copy()
        self._ready: list[tuple[int, int]] = []
        self._sent_bytes = np.zeros(len(self._graph))
        for task in self._expected:
            self._receivers.submit(self._caught, task, partial(self._receive, task))
        began = self._transport.start()
        for task in np.flatnonzero(self._own_tasks & (self._waits == 0)).tolist():
            self._begin(task)
        self._run()
        return RankStep(
            start_s=self._start_s - began,
            end_s=self._end_s - began,
            sent_bytes=self._sent_bytes,
            loss=self.shards.loss,
        )

    def _run(self) -> None:
        """Compute what is ready and take what arrives, until all of this rank's tasks have ended."""
        left = int(self._own_tasks.sum()) + len(self._expected)
        while left:
            while not self._ready or not self._events.empty():
                event = self._events.get()
                if isinstance(event, BaseException):
                    raise event
                self._end(*event)
                left -= 1
                if not left:
                    return
            _, task = heapq.heappop(self._ready)
            self._compute(task)
            left -= 1

    def _begin(self, task: int) -> None:
        """All that `task` waits for has ended."""
        if self._graph.route[task] < 0:
            heapq.heappush(self._ready, (int(self._graph.priority[task]), task))
            return
        self._start_s[task] = time.monotonic()
        if task in self._sends:
            self._senders.submit(self._caught, task, self._send(task))
        else:
            transfer = self._updates.transfers.get(task)
            summed = transfer is not None and transfer.step == "all-reduce"
            pool = self._groups[transfer.members] if transfer is not None and summed else self._senders
            pool.submit(self._caught, task, partial(self._collective, task))

    def _compute(self, task: int) -> None:
        graph = self._graph
        self._doing(self._descriptions[task])
        self._start_s[task] = time.monotonic()
        kind, of = Kind(graph.kind[task]), (int(graph.layer[task]), int(graph.microbatch[task]), int(graph.shard[task]))
        if kind in (Kind.FORWARD, Kind.RECOMPUTE):
            self.shards.forward(*of, again=kind == Kind.RECOMPUTE)
        elif kind == Kind.BACKWARD:
            self.shards.backward(*of)
        elif kind == Kind.WEIGHT:
            self.shards.weight(*of)
        else:
            self._updates.update(task)
        if self._slowness:
            time.sleep((time.monotonic() - self._start_s[task]) * self._slowness)
        self._end_s[task] = time.monotonic()
        self._end(task, None)

    def _caught(self, task: int, communicate: Callable[[], Tensor | None]) -> None:
        """Communicate in a thread; the end, or the error, is an event of the main thread."""
        try:
            self._events.put((task, communicate()))
        except BaseException as error:
            self._events.put(error)

    def _send(self, task: int) -> Callable[[], None]:
        """Begin to send; what it returns waits until the message has left."""
        target = self._graph.routes[self._graph.route[task]].pairs[0][1]
        if task in self._script.moves:
            row = self._flow(task).row(self._script.moves[task].move)
        else:
            row = self._updates.message(task)
        row = row.contiguous()
        self._sent_bytes[task] = row.nbytes
        return self._transport.send(row, target, task)

    def _receive(self, task: int) -> Tensor:
        if task in self._script.moves:
            row = self._flow(task).empty_row(self._script.moves[task].move)
        else:
            row = self._updates.empty_row(task)
        self._transport.receive(row, self._graph.routes[self._graph.route[task]].pairs[0][0], task)
        self._end_s[task] = time.monotonic()
        return row

    def _collective(self, task: int) -> Tensor:
        """Of messages; only a bucket's sum over all its devices is the backend's own all-reduce."""
        if task in self._script.moves:
            carried = self._script.moves[task]
            row = self._flow(task).collective(carried.move, carried.members, self._swap(task, carried.members))
        elif self._updates.transfers[task].step == "all-reduce":
            row = self._updates.all_reduced(task)
            self._sent_bytes[task] = row.nbytes
            self._transport.all_reduce(row, self._updates.transfers[task].members)
        else:
            row = self._updates.collective(task, self._swap(task, self._updates.transfers[task].members))
        self._end_s[task] = time.monotonic()
        return row

    def _swap(self, task: int, members: tuple[int, ...]) -> Swap:
        """How this rank exchanges rows with other members of a collective."""
        self._sent_bytes[task] = 0

        def swap(target: int, row: Tensor, source: int, room: Tensor) -> None:
            self._sent_bytes[task] += row.nbytes
            self._transport.swap(row.contiguous(), members[target], room, members[source], task)

        return swap

    def _flow(self, task: int) -> TensorFlow:
        """The tensor that an activation or a gradient is of."""
        carried = self._script.moves[task]
        return self.shards.flow(carried.layer, int(self._graph.microbatch[task]), carried.phase)

    def _end(self, task: int, row: Tensor | None) -> None:
        """Take the row that arrived with a task that has ended, and begin tasks that waited for it last."""
        if self._graph.route[task] >= 0:
            self._take(task, row)
        for successor in self._successors[task]:
            self._waits[successor] -= 1
            if not self._waits[successor]:
                self._begin(successor)

    def _take(self, task: int, row: Tensor | None) -> None:
        carried = self._script.moves.get(task)
        if row is not None and carried is not None:
            self._flow(task).deliver(carried.move, row)
        elif row is not None and task in self._collectives:
            self._updates.take_collective(task, row)
        elif row is not None:
            self._updates.take_message(task, row)
        if carried is not None and task not in self._expected:
            self.shards.release(carried.layer, int(self._graph.microbatch[task]), carried.phase)

    def _sort_tasks(self) -> None:
        """Which tasks this rank begins, which messages it receives, and how many tasks each waits for here."""
        graph, rank = self._graph, self._rank
        routes = {task: graph.routes[graph.route[task]] for task in np.flatnonzero(graph.is_transfer).tolist()}
        self._sends = {task for task, route in routes.items() if len(route.pairs) == 1 and route.pairs[0][0] == rank}
        received = [task for task, route in routes.items() if len(route.pairs) == 1 and route.pairs[0][1] == rank]
        self._collectives = {task for task, route in routes.items() if len(route.pairs) > 1 and rank in route.devices}
        self._own_tasks = (graph.device == rank) & ~graph.is_transfer
        self._own_tasks[[*self._sends, *self._collectives]] = True
        seen = self._own_tasks.copy()
        seen[received] = True
        owner = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_start))  # (dependencies,)
        self._wait_counts = np.bincount(owner[seen[graph.dependencies]], minlength=len(graph))  # (tasks,)
        start, successors = turned_round(graph.dependency_start, graph.dependencies)
        self._successors = [
            [x for x in after.tolist() if self._own_tasks[x]] for after in np.split(successors, start[1:-1])
        ]
        position = np.empty(len(graph), dtype=np.int64)
        position[in_order(graph, self._script.predicted)] = np.arange(len(graph))
        self._expected = dict.fromkeys(sorted(received, key=position.__getitem__))
        computed = np.flatnonzero(self._own_tasks & ~graph.is_transfer).tolist()
        self._descriptions = {task: graph.describe(task) for task in computed}
