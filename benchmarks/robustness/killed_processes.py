"""Processes that are killed on purpose: started with a mark, killed, and looked for afterwards with what they left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks import ROOT
from traces.lab import namespaces

PROGRAM = "import sys; from simulator.cli import main; sys.argv[0] = 'shardscope'; sys.exit(main())"
GONE_S, LONGEST_S = 60.0, 600.0
MARK = "SHARDSCOPE_KILLS"


@dataclass(slots=True, kw_only=True)
class Killed:
    """How kills of one kind went: failures in words."""

    kills: dict[int, int] = field(default_factory=lambda: {signal.SIGKILL: 0, signal.SIGTERM: 0})
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Room:
    """A folder to work in, with one for temporary files, and the mark of the processes started in it."""

    folder: Path
    random: Random
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def temporary(self) -> Path:
        return self.folder / "temporary"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command of Shardscope, in its own session."""
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT), MARK: self.mark}
        return subprocess.Popen(
            [sys.executable, "-W", "default", "-c", PROGRAM, *words], cwd=self.folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def finish(self, *words: str) -> str:
        """What is wrong with a command that ought to come to its end; empty where it does."""
        process = self.start(*words)
        _, complaint = process.communicate(timeout=LONGEST_S)
        return f"{words[0]} ends with {process.returncode}: {complaint[-200:]}" if process.returncode else ""

    def processes(self) -> list[int]:
        """Those that were started here, directly or not, and live."""
        return [process for process in _numbers() if f"{MARK}={self.mark}".encode() in _environment(process)]

    def kill(self, process: subprocess.Popen[str], number: int, killed: Killed) -> bool:
        """Send a signal and await the end; whether the process still ran."""
        running = process.poll() is None
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GONE_S)
        if process.returncode is None:
            killed.left.append(f"a process that signal {number} does not end")
            process.kill()
        _, complaint = process.communicate()
        if number == signal.SIGTERM and process.returncode not in (0, 130, -signal.SIGTERM):  # the latter: at once
            killed.lost.append(f"SIGTERM ends it with {process.returncode}")
        if number == signal.SIGTERM and ("Traceback" in complaint or "Warning" in complaint):
            killed.left.append(f"words on stderr: {complaint[-300:]}")
        deadline = time.monotonic() + GONE_S
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        for other in self.processes():
            killed.left.append(f"process {other}: {command_of(other)}")
            os.kill(other, signal.SIGKILL)
        if number == signal.SIGTERM:
            killed.left += [f"{name} after SIGTERM" for name in (*self.leftovers(), *ownerless_namespaces())]
        killed.kills[number] += running
        return running and process.returncode != 0

    def leftovers(self) -> list[str]:
        """Temporary folders and half-written files; torch keeps its cache, whoever ends."""
        half = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*.tmp")]
        return [
            *half,
            *(f"temporary/{name}" for name in os.listdir(self.temporary) if not name.startswith("torchinductor_")),
        ]


def wait_for(process: subprocess.Popen[str], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def ownerless_namespaces() -> list[str]:
    return [f"namespace {name}" for name in namespaces.listed() if not namespaces.owner_lives(name)]


def _numbers() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _environment(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/environ").read_bytes()
    return b""


def command_of(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def stat_of(process: int) -> list[str]:
    """State, parent and so on of a process; empty where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return []
