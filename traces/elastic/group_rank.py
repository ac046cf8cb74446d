"""The life of one rank of an elastic process group.

    python -m traces.elastic.group_rank FOLDER DEVICE GENERATION PARENT

FOLDER/job.json          what is trained                  FOLDER/DEVICE.log        what it did when, a JSON line each
FOLDER/N.generation      who trains in generation N       FOLDER/DEVICE.N.ready    its process has started
FOLDER/N.store           where its ranks connect          FOLDER/checkpoint        of a restart

A generation is a set of devices, of which the i-th is rank i, and where the training state comes from. Rank 0 tells the
others by the membership flag of a step's all-reduce that the next generation stands in the folder; all leave after it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from traces.lab.child_processes import dies_with, set_priority

if TYPE_CHECKING:
    from traces.elastic.elastic_worker import ElasticWorker

POLL_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Devices in the order of their ranks, and the samples of a step that each computes.

    source: where the training state comes from: "start" is the seed, "checkpoint" the file, "move" other ranks along
    `messages` of (source, target) ranks, "agree" the rank that is ahead. timeout_s: of a collective.
    """

    devices: tuple[int, ...]
    shares: tuple[int, ...]
    source: str = "start"
    messages: tuple[tuple[int, int], ...] = ()
    timeout_s: float = 60.0


def run(folder: Path, device: int, number: int, parent: int) -> None:
    """Train from generation `number` on, until one does not have this device, or everything stops."""
    if not dies_with(parent):
        return
    job = json.loads((folder / "job.json").read_text())
    if job["cores"]:
        os.sched_setaffinity(0, [job["cores"][device % len(job["cores"])]])
    if _path(folder, number).exists():
        set_priority(-20)  # nobody trains meanwhile
    with open(folder / f"{device}.log", "a", buffering=1) as log:
        _Life(folder, device, number, log).train(job["training"])
    os._exit(0)  # an ordinary exit waits for the backend's threads, which may be waiting for a peer


class _Life:
    """What a device's process does, and its log: what ended, for which generation, and when by CLOCK_MONOTONIC.

    number: of the generation that it trains in, or waits for.
    """

    def __init__(self, folder: Path, device: int, number: int, log: TextIO) -> None:
        self._folder, self._device, self._number, self._log = folder, device, number, log

    def train(self, training: Mapping[str, Any]) -> None:
        """Every generation from the first one on that has this device."""
        self._note("launch")
        from traces.elastic.elastic_worker import ElasticWorker, TrainingJob, write_state

        worker = ElasticWorker(TrainingJob(**training))
        self._note("framework")
        (self._folder / f"{self._device}.{self._number}.ready").touch()
        while self._device in (generation := self._awaited()).devices:
            set_priority(-20)
            self._enter(worker, generation)
            self._number += 1
            if self._train_until_change(worker, generation) and self._awaited().source == "checkpoint":
                if generation.devices[0] == self._device:
                    write_state(self._folder / "checkpoint", worker.state)
                    self._note("write checkpoint")
                break
            worker.leave()
            self._note("leave groups")
        self._note("end")

    def _awaited(self) -> Generation:
        path = _path(self._folder, self._number)
        while not path.exists():
            time.sleep(POLL_S)
        return Generation(**json.loads(path.read_text()))

    def _enter(self, worker: ElasticWorker, generation: Generation) -> None:
        """Join the process group and take over the training state; the log has a line after each part."""
        from traces.elastic.elastic_worker import group_over, read_state

        rank, store = generation.devices.index(self._device), self._folder / f"{self._number}.store"
        group = group_over(store, rank, len(generation.shares), generation.timeout_s)
        worker.join(group, rank, generation.shares)
        self._note("groups")
        if generation.source == "checkpoint":
            read_state(self._folder / "checkpoint", worker.state)
            self._note("read checkpoint")
        elif generation.source != "start":
            worker.move_state(generation.messages)
            if generation.source == "agree":
                worker.agree()
            self._note("move")

    def _train_until_change(self, worker: ElasticWorker, generation: Generation) -> bool:
        """Steps until the next generation is announced (True), or until a rank is lost (False)."""
        first = generation.devices[0] == self._device
        while True:
            samples, began_s = worker.own_samples(), time.monotonic()
            try:
                loss, changed = worker.step(first and _path(self._folder, self._number).exists())
            except RuntimeError:
                self._note("detect")
                return False
            step = {"step": worker.step_number - 1, "loss": loss, "samples": samples, "began_s": began_s}
            self._note("step", self._number - 1, **step, compute_s=worker.compute_s)
            if changed:
                return True

    def _note(self, what: str, generation: int | None = None, **more: Any) -> None:
        number = self._number if generation is None else generation
        line = {"what": what, "generation": number, "at_s": time.monotonic(), **more}
        self._log.write(json.dumps(line) + "\n")


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number}.generation"


if __name__ == "__main__":
    run(Path(sys.argv[1]), *map(int, sys.argv[2:]))
