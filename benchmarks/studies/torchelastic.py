"""The baseline of elastic training: torchrun's own restarts over loopback, of the same training as ours.

    python -m benchmarks.studies.torchelastic

One agent per device; agents come (1, 2, 4, 8 of them) and are then told to end (4, 2, 1). Rank 0 writes a checkpoint
after every step. Printed: seconds from the last step before to the moment when all ranks have read the checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from traces.lab.child_processes import kill_processes, start_process

SIZES = (1, 2, 4, 8, 4, 2, 1)
STEPS = 10
WAIT_S = 90.0
RENDEZVOUS = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29777", "--local-addr=127.0.0.1", "--rdzv-id=elastic")
PATIENCE = ("--rdzv-conf", "last_call_timeout=1,timeout=120,join_timeout=120", "--monitor-interval=0.1")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="shardscope-") as name:
        folder, agents = Path(name), [_agent(0, Path(name))]
        try:
            _await(folder, SIZES[0])
            for size in SIZES[1:]:
                agents += [_agent(number, folder) for number in range(len(agents), size)]
                for agent in agents[size:]:
                    os.killpg(agent.pid, signal.SIGTERM)
                del agents[size:]
                _await(folder, size)
        finally:
            kill_processes(agents)
        for before, after, pause_s in pauses(_lines(folder)):
            print(f"{before} -> {after}: {pause_s:.1f} s")


def pauses(lines: list[dict[str, Any]]) -> Iterator[tuple[int, int, float]]:
    """(devices before, after, seconds without steps until the last rank has read the checkpoint)."""
    steps = [line for line in lines if line["what"] == "step" and line["rank"] == 0]
    for last, first in pairwise(steps):
        if last["world"] != first["world"]:
            read_s = [x["at_s"] for x in lines if x["what"] == "read" and last["at_s"] < x["at_s"] <= first["at_s"]]
            yield last["world"], first["world"], max(read_s) - last["at_s"]


def train_worker(folder: Path) -> None:
    """What each process that an agent starts does."""
    import torch.distributed as dist

    from traces.elastic.elastic_worker import ElasticWorker, TrainingJob, even_shares, read_state, write_state

    worker = ElasticWorker(TrainingJob(model="vgg_small", batch_size=64))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD if world > 1 else None
    worker.join(group, rank, even_shares(worker.training.batch_size, world))
    if (folder / "checkpoint").exists():
        read_state(folder / "checkpoint", worker.state)
    with open(folder / f"{os.getpid()}.log", "w", buffering=1) as log:
        _note(log, "read", rank, world)
        while True:
            worker.step()
            if rank == 0:
                write_state(folder / "writing", worker.state)
                (folder / "writing").rename(folder / "checkpoint")
            _note(log, "step", rank, world)


def _note(log: Any, what: str, rank: int, world: int) -> None:
    log.write(json.dumps({"what": what, "at_s": time.monotonic(), "rank": rank, "world": world}) + "\n")


def _agent(number: int, folder: Path) -> subprocess.Popen[bytes]:
    torchrun = shutil.which("torchrun", path=str(Path(sys.executable).parent)) or "torchrun"
    argv = [torchrun, "--nnodes=1:8", "--nproc-per-node=1", "--max-restarts=100", *RENDEZVOUS, *PATIENCE]
    argv += ["-m", "benchmarks.studies.torchelastic", str(folder)]
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # agents that share it wait for each other for ever
    return start_process(argv, folder / f"agent{number}.out", environment=own_store)


def _lines(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for path in folder.glob("*.log") for line in path.read_text().splitlines()[:-1]]
    return sorted(lines, key=lambda line: float(line["at_s"]))


def _await(folder: Path, world: int) -> None:
    """Return when STEPS steps were made on so many devices since now."""
    deadline, began_s = time.monotonic() + WAIT_S, time.monotonic()
    while True:
        steps = [x for x in _lines(folder) if x["what"] == "step" and x["world"] == world and x["at_s"] > began_s]
        if sum(line["rank"] == 0 for line in steps) >= STEPS:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{world} devices made no {STEPS} steps within {WAIT_S:g} s")
        time.sleep(0.5)


if __name__ == "__main__":
    train_worker(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
