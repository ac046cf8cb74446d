"""The life of one rank that `traces.lab.launch` started: `python -m traces.lab.rank FOLDER NUMBER PARENT`.

FOLDER/job.json    what to do, the same for all          FOLDER/N.task      what rank N does now
FOLDER/store       where the ranks find each other       FOLDER/N.result    what its function returned, as JSON
FOLDER/N.log       what it printed                       FOLDER/N.error     when it raised, if it did
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from simulator.errors import ShardscopeError
from traces.lab.child_processes import dies_with, set_priority

_TASK_BYTES = 512


class Rank:
    """What a rank knows about itself: `number` of `ranks`, and where it notes the task that it is doing."""

    def __init__(self, number: int, ranks: int, folder: Path) -> None:
        self.number = number
        self.ranks = ranks
        with open(folder / f"{number}.task", "w+b") as file:
            file.truncate(_TASK_BYTES)
            self._task = mmap.mmap(file.fileno(), _TASK_BYTES)

    def doing(self, task: str) -> None:
        """Note the task that starts now, for the error should the rank die or hang in it; costs no system call."""
        self._task[:] = task.encode()[:_TASK_BYTES].ljust(_TASK_BYTES, b"\0")


def run(folder: Path, number: int, parent: int) -> None:
    """A rank's life: set up, join the others, call the target, leave the result."""
    if not dies_with(parent):
        return
    faulthandler.register(signal.SIGUSR1)
    job = json.loads((folder / "job.json").read_text())
    rank = Rank(number, job["ranks"], folder)
    set_priority(-20)  # so that the machine's other programs disturb what is measured least
    try:
        result = _in_group(job, rank, folder)
        (folder / f"{number}.result").write_text(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)  # an ordinary exit may abort: process groups that a device mesh still holds have running threads
    except BaseException as error:
        (folder / f"{number}.error").write_text(str(time.monotonic()))
        if isinstance(error, ShardscopeError):  # raised on purpose, it says all by itself
            print(error, file=sys.stderr)
        else:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # an ordinary exit waits for the backend's threads, which may be waiting for a peer


def called(target: str, rank: Rank, arguments: Mapping[str, Any]) -> Any:
    """What `target` ("module:function") returns for a rank."""
    module, _, function = target.partition(":")
    return getattr(importlib.import_module(module), function)(rank, **arguments)


def _in_group(job: Mapping[str, Any], rank: Rank, folder: Path) -> Any:
    """What the job's target returns, called in a process group if it asks for one. job: what `launch` was told."""
    if job["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job["cores"][rank.number])
    if not job["backend"]:
        return called(job["target"], rank, job["arguments"])
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank.doing("connecting to the other ranks")
    store = f"file://{folder / 'store'}"
    limit = timedelta(seconds=job["timeout_s"])
    dist.init_process_group(job["backend"], init_method=store, rank=rank.number, world_size=rank.ranks, timeout=limit)
    result = called(job["target"], rank, job["arguments"])
    rank.doing("leaving")
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
