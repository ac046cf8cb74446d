"""The life of one rank of an elastic process group.

    python -m traces.elastic.group_rank FOLDER DEVICE GENERATION PARENT

FOLDER/job.json          what is trained                  FOLDER/DEVICE.log        what it did when, a JSON line each
FOLDER/N.generation      who trains in generation N       FOLDER/DEVICE.N.ready    its process has started
FOLDER/N.store           where they find each other       FOLDER/checkpoint        of a restart

A generation is a set of members and how its state comes about. The first member tells the others, by the word of a
step, that the next generation stands in the folder; all leave after that step.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traces.elastic.elastic_worker import ElasticWorker

POLL_S = 0.002
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Members by device, and the samples of a step that each computes; `speeds` of each, 1 where not slowed down.

    source: "start" from the seed, "checkpoint", "move" along `messages` of (source, target) ranks, "agree" on the state
    that is furthest.
    """

    members: tuple[int, ...]
    shares: tuple[int, ...]
    speeds: tuple[float, ...]
    source: str = "start"
    messages: tuple[tuple[int, int], ...] = ()
    timeout_s: float = 60.0


def run(folder: Path, device: int, generation: int, parent: int) -> None:
    """A member's life, until it is in a generation no more, or everything stops."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not even a killed parent leaves members behind
    if os.getppid() != parent:
        return
    job = json.loads((folder / "job.json").read_text())
    if job["cores"]:
        os.sched_setaffinity(0, [job["cores"][device % len(job["cores"])]])
    if (folder / f"{generation}.generation").exists():
        take_turn(-20)  # nobody trains meanwhile
    with open(folder / f"{device}.log", "a", buffering=1) as file:
        log = _Log(file)
        log.note("launch", generation)
        from traces.elastic.elastic_worker import ElasticWorker, TrainingJob, write_state

        worker = ElasticWorker(TrainingJob(**job["training"]))
        log.note("framework", generation)
        (folder / f"{device}.{generation}.ready").touch()
        while True:
            told = _awaited(folder, generation)
            if device not in told.members:
                break
            take_turn(-20)
            _enter(worker, told, folder, device, generation, log)
            generation += 1
            if _train(worker, told, folder, device, generation, log) and _restarts(folder, generation):
                if told.members[0] == device:
                    write_state(folder / "checkpoint", worker.state)
                    log.note("write checkpoint", generation)
                break
            worker.leave()
            log.note("leave groups", generation)
        log.note("end", generation)
    os._exit(0)  # an ordinary exit waits for the backend's threads, which may be waiting for a peer


def take_turn(niceness: int) -> None:
    """Come before (-20) or after (19) other processes at the processor; without root nothing changes."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
        Path("/proc/self/autogroup").write_text(str(niceness))


class _Log:
    def __init__(self, file: Any) -> None:
        self._file = file

    def note(self, what: str, generation: int, **more: Any) -> None:
        line = {"what": what, "generation": generation, "at_s": time.monotonic(), **more}
        self._file.write(json.dumps(line) + "\n")


def _awaited(folder: Path, number: int) -> Generation:
    path = folder / f"{number}.generation"
    while not path.exists():
        time.sleep(POLL_S)
    return Generation(**json.loads(path.read_text()))


def _restarts(folder: Path, generation: int) -> bool:
    return _awaited(folder, generation).source == "checkpoint"


def _enter(worker: ElasticWorker, told: Generation, folder: Path, device: int, generation: int, log: _Log) -> None:
    """Join the group and come by the state; the log has a line after each part."""
    worker.join(folder / f"{generation}.store", told.members.index(device), told.shares, told.timeout_s)
    log.note("groups", generation)
    if told.source == "checkpoint":
        from traces.elastic.elastic_worker import read_state

        read_state(folder / "checkpoint", worker.state)
        log.note("read checkpoint", generation)
    elif told.source == "move":
        worker.spread(told.messages)
        log.note("move", generation)
    elif told.source == "agree":
        worker.agree()
        log.note("move", generation)


def _train(worker: ElasticWorker, told: Generation, folder: Path, device: int, following: int, log: _Log) -> bool:
    """Steps until the word that generation `following` is there (True), or until a member is gone (False)."""
    leads, path = told.members[0] == device, folder / f"{following}.generation"
    speed = told.speeds[told.members.index(device)]
    while True:
        own, began_s = worker.own_samples(), time.monotonic()
        word = int(leads and path.exists())
        try:
            loss, heard = worker.step(word, speed)
        except RuntimeError:
            log.note("detect", following)
            return False
        number = worker.step_number - 1
        took_s = {"began_s": began_s, "compute_s": worker.compute_s}
        log.note("step", following - 1, step=number, loss=loss, samples=own, **took_s)
        if heard:
            return True


def main(argv: list[str]) -> None:
    folder, device, generation, parent = argv
    run(Path(folder), int(device), int(generation), int(parent))


if __name__ == "__main__":
    main(sys.argv[1:])
