"""Processes that this one starts for ranks, and what those do about their place on the machine.

    parent   start_process(argv, log) ... kill_processes(processes); preempt_ranks(True) while it directs them
    child    dies_with(parent); set_priority(-20) while what it does is measured

No torch and no simulator here: a child imports this before anything that takes time.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traces.lab.shaped_network import Lab

_PR_SET_PDEATHSIG = 1


def start_process(
    argv: Sequence[str],
    log: Path,
    *,
    lab: Lab | None = None,
    device: int = 0,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` on the lab's device, or on this machine where there is no lab; what it prints is added to `log`.

    It imports what this process can import, its backends talk over the lab's interface (loopback without a lab), and
    its numeric libraries have one thread. environment: variables beside this process's own.
    """
    interface = lab.interface if lab else "lo"
    paths = [str(Path(__file__).parents[2]), *sys.path]
    with open(log, "ab") as output:
        return subprocess.Popen(
            lab.command(device, argv) if lab else argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "GLOO_SOCKET_IFNAME": interface,
                "NCCL_SOCKET_IFNAME": interface,
                "OMP_NUM_THREADS": "1",
                "MKL_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(path for path in paths if path),
                **(environment or {}),
            },
            start_new_session=True,  # so that what a child starts dies with it
        )


def kill_processes(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes that `start_process` started, with all that they started; returns when they are gone."""
    processes = list(processes)
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.wait()


def dies_with(parent: int) -> bool:
    """Let the kernel kill this process when process `parent`, its own, ends; False where that has ended already."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not even a killed parent leaves children behind
    return os.getppid() == parent


def usable_cores() -> list[int]:
    """The cores that this process may use, in order; all of the machine's where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def set_priority(niceness: int) -> None:
    """Come before (-20) or after (19) the machine's other programs at the processor; without root nothing changes.

    Where the kernel groups processes by session, only the group's own weight counts: a child leads its own session.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
        Path("/proc/self/autogroup").write_text(str(niceness))


def preempt_ranks(preempts: bool) -> None:
    """Let this thread run at once when it has something to do, or no longer; without root nothing changes.

    A real-time policy that children do not inherit: a priority of -20 would be that of all programs of its session.
    """
    if hasattr(os, "sched_setscheduler"):
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK if preempts else os.SCHED_OTHER
        with suppress(OSError):
            os.sched_setscheduler(0, policy, os.sched_param(int(preempts)))
