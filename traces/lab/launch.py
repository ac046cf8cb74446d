"""Run one process per rank, in the network lab or over loopback, and bring back what each returned.

    parent: launch("package.module:function", ranks)
        rank 0 ... rank N-1: function(rank, **arguments) -> JSON      each in its device's namespace

The ranks find each other through a file (torch's FileStore), not a TCP port: no two runs can race for a port, and
the links carry nothing but the backend's own traffic. A run ends within its time whatever a rank does: the first
to die or time out stops the others, and RunError says which rank it was, its last task and its error.

Started by torchrun, this process is a rank itself: all ranks launch alike, each calls the function, and every one gets
the results of all.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import RunError, require
from simulator.owned_files import temporary_folder
from traces.lab.child_processes import kill_processes, start_process
from traces.lab.rank import Rank, called
from traces.lab.shaped_network import Lab

POLL_S = 0.01
GRACE_S = 1.0
"""After a rank failed, how long its peers may take to fail too: the first cause is among them."""

_SHOWN_LINES = 12

_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""The C library keeps what is freed. Otherwise it returns large tensors to the system and takes them anew, page by
page: a fifth of the step of a small network, more or less from one step to the next."""


def launch(
    target: str,
    ranks: int,
    *,
    lab: Lab | None = None,
    arguments: Mapping[str, Any] | None = None,
    timeout_s: float = 120.0,
    cores: Sequence[Sequence[int]] = (),
    backend: str = "gloo",
) -> list[Any]:
    """Call `target` ("module:function") as function(rank, **arguments) in `ranks` processes; their results in order.

    lab: rank r runs on its device r; None runs all over loopback, unshaped. arguments and results are JSON. cores: the
    CPU numbers that each rank may use, all by default. backend: of the default process group, which is up when the
    function is called, with torch on one thread; "" for none. timeout_s: for everything, from the first start to the
    last result. Raises RunError when a rank dies, hangs or cannot connect; under torchrun, which sets cores, threads
    and times itself, what the function raises.
    """
    require(ranks >= 1, "ranks", ranks, "it is at least 1")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _join(target, ranks, arguments or {})
    require(timeout_s > 0, "timeout_s", timeout_s, "it is positive")
    require(len(cores) in (0, ranks), "cores", len(cores), f"one set for each of the {ranks} ranks, or none")
    if lab is not None:
        devices = len(lab.cluster.devices)
        require(ranks <= devices, "ranks", ranks, f"the lab has {devices} devices, one rank each")
    job: dict[str, Any] = {"target": target, "ranks": ranks, "arguments": arguments or {}}
    job |= {"timeout_s": timeout_s, "cores": cores, "backend": backend}
    with temporary_folder() as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job))
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(ranks):
                argv = [sys.executable, "-m", "traces.lab.rank", str(folder), str(number), str(os.getpid())]
                log = folder / f"{number}.log"
                processes.append(start_process(argv, log, lab=lab, device=number, environment=_KEEP_MEMORY))
            _watch(processes, folder, timeout_s)
        finally:
            kill_processes(processes)
        return [json.loads((folder / f"{number}.result").read_text()) for number in range(ranks)]


def _join(target: str, ranks: int, arguments: Mapping[str, Any]) -> list[Any]:
    """Take part as the rank that torchrun made this process."""
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    world = dist.get_world_size()
    require(ranks == world, "ranks", ranks, f"torchrun started {world}: one for each device of the cluster")
    with temporary_folder() as folder:
        own = called(target, Rank(dist.get_rank(), world, Path(folder)), arguments)
    results: list[Any] = [None] * world
    dist.all_gather_object(results, json.loads(json.dumps(own)))
    return results


def _watch(processes: Sequence[subprocess.Popen[bytes]], folder: Path, timeout_s: float) -> None:
    """Return when all ranks have ended well; RunError at the first that did not, or when time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        codes = [process.poll() for process in processes]
        if any(codes):
            grace_ends = min(deadline, time.monotonic() + GRACE_S)
            while None in [process.poll() for process in processes] and time.monotonic() < grace_ends:
                time.sleep(POLL_S)
            raise RunError(_failure(processes, folder))
        if None not in codes:
            return
        if time.monotonic() > deadline:
            raise RunError(_hang(processes, folder, timeout_s))
        time.sleep(POLL_S)


def _failure(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> str:
    """The rank whose failure came first: one that was killed, else the earliest exception; with its error."""
    died = [number for number, process in enumerate(processes) if process.returncode]

    def moment(number: int) -> float:
        stamp = folder / f"{number}.error"
        return float(stamp.read_text()) if stamp.exists() else 0.0

    first = min(died, key=moment)
    code = processes[first].returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    return f"rank {first} {how} {_during(first, folder)}{_log_end(first, folder)}"


def _hang(processes: Sequence[subprocess.Popen[bytes]], folder: Path, timeout_s: float) -> str:
    """The ranks still running when time was up, each with its last task and its Python stack."""
    running = [number for number, process in enumerate(processes) if process.poll() is None]
    for number in running:
        processes[number].send_signal(signal.SIGUSR1)
    time.sleep(20 * POLL_S)
    ends = "\n".join(f"rank {number} {_during(number, folder)}{_log_end(number, folder)}" for number in running)
    return f"{len(running)} of {len(processes)} ranks did not end within {timeout_s:g} s:\n{ends}"


def _during(number: int, folder: Path) -> str:
    noted = folder / f"{number}.task"
    task = noted.read_bytes().rstrip(b"\0").decode(errors="replace") if noted.exists() else ""
    return f"(last task: {task})" if task else "(before its first task)"


def _log_end(number: int, folder: Path) -> str:
    lines = (folder / f"{number}.log").read_text(errors="replace").strip().splitlines()
    return "".join(f"\n    {line}" for line in lines[-_SHOWN_LINES:])
