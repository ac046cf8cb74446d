"""The tasks that end backward passes, by device and by parameter: what the synchronisation of gradients waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.distinct import places
from simulator.lowering.parameters.replicas import Replicas
from simulator.taskgraph import Ints


@dataclass(frozen=True, slots=True)
class TasksOnDevices:
    """Tasks with the device that each runs on, by device; the two arrays are of one length."""

    tasks: Ints
    devices: Ints

    @classmethod
    def of(cls, tasks: Ints, devices: Ints) -> TasksOnDevices:
        """These tasks, put in order."""
        order = np.argsort(devices, kind="stable")
        return cls(tasks[order], devices[order])

    def on(self, devices: Sequence[int]) -> TasksOnDevices:
        """Those that run on `devices`, each named once."""
        _, at = places(self.devices, devices)
        return TasksOnDevices(self.tasks[at], self.devices[at])

    def joined(self, others: Iterable[TasksOnDevices]) -> TasksOnDevices:
        """These and others."""
        parts = [self, *others]
        return TasksOnDevices.of(
            np.concatenate([part.tasks for part in parts]), np.concatenate([part.devices for part in parts])
        )


@dataclass(frozen=True)
class BackwardTasks:
    """The tasks that end backward passes: `last` by shard of one micro-batch, on `device`; `starts` by micro-batch."""

    last: Ints
    device: Ints
    starts: Ints

    def of(self, pieces: Iterable[Replicas], microbatches: slice) -> TasksOnDevices:
        """Every one of these micro-batches that adds to the gradients of parameter pieces."""
        shards = np.array([shard for piece in pieces for shard in piece.shards], dtype=np.int64)
        begins = self.starts[microbatches]
        return TasksOnDevices.of(
            np.add.outer(self.last[shards], begins).ravel(), np.repeat(self.device[shards], len(begins))
        )

    @cached_property
    def whole(self) -> TasksOnDevices:
        """All of them."""
        return TasksOnDevices.of(np.add.outer(self.starts, self.last).ravel(), np.tile(self.device, len(self.starts)))
