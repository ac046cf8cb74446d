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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    with open(folder / f"{device}.log", "a", buffering=1) as file:
        log = _Log(file)
        log.note("launch", number)
        from traces.elastic.elastic_worker import ElasticWorker, TrainingJob, write_state

        worker = ElasticWorker(TrainingJob(**job["training"]))
        log.note("framework", number)
        (folder / f"{device}.{number}.ready").touch()
        while True:
            generation = _awaited(folder, number)
            if device not in generation.devices:
                break
            set_priority(-20)
            _enter(worker, generation, folder, device, number, log)
            number += 1
            if _train_until_change(worker, generation, folder, device, number, log) and _restarts(folder, number):
                if generation.devices[0] == device:
                    write_state(folder / "checkpoint", worker.state)
                    log.note("write checkpoint", number)
                break
            worker.leave()
            log.note("leave groups", number)
        log.note("end", number)
    os._exit(0)  # an ordinary exit waits for the backend's threads, which may be waiting for a peer


class _Log:
    """A device's log: what ended, for which generation, and when in seconds of CLOCK_MONOTONIC."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def note(self, what: str, generation: int, **more: Any) -> None:
        line = {"what": what, "generation": generation, "at_s": time.monotonic(), **more}
        self._file.write(json.dumps(line) + "\n")


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number}.generation"


def _awaited(folder: Path, number: int) -> Generation:
    while not _path(folder, number).exists():
        time.sleep(POLL_S)
    return Generation(**json.loads(_path(folder, number).read_text()))


def _restarts(folder: Path, number: int) -> bool:
    return _awaited(folder, number).source == "checkpoint"


def _enter(worker: ElasticWorker, generation: Generation, folder: Path, device: int, number: int, log: _Log) -> None:
    """Join the process group and take over the training state; the log has a line after each part."""
    rank = generation.devices.index(device)
    worker.join(folder / f"{number}.store", rank, generation.shares, generation.timeout_s)
    log.note("groups", number)
    if generation.source == "checkpoint":
        from traces.elastic.elastic_worker import read_state

        read_state(folder / "checkpoint", worker.state)
        log.note("read checkpoint", number)
    elif generation.source == "move":
        worker.move_state(generation.messages)
        log.note("move", number)
    elif generation.source == "agree":
        worker.agree()
        log.note("move", number)


def _train_until_change(
    worker: ElasticWorker, generation: Generation, folder: Path, device: int, following: int, log: _Log
) -> bool:
    """Steps until generation `following` is announced (True), or until a rank is lost (False)."""
    rank = generation.devices.index(device)
    while True:
        samples, began_s = worker.own_samples(), time.monotonic()
        changes = rank == 0 and _path(folder, following).exists()
        try:
            loss, changed = worker.step(changes)
        except RuntimeError:
            log.note("detect", following)
            return False
        number = worker.step_number - 1
        seconds = {"began_s": began_s, "compute_s": worker.compute_s}
        log.note("step", following - 1, step=number, loss=loss, samples=samples, **seconds)
        if changed:
            return True


def main(argv: list[str]) -> None:
    folder, device, number, parent = argv
    run(Path(folder), int(device), int(number), int(parent))


if __name__ == "__main__":
    main(sys.argv[1:])
