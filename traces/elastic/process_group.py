"""A crew: processes that train one network together in a lab and whose number changes while they do.

with ElasticProcessGroup(training, lab, cores) as crew:
    crew.start((0,))
    crew.expand((0, 1), "live")        processes start beside the training, then one pause
    crew.expand((0, 1, 2, 3), "restart")
    crew.shrink((0, 1))
    crew.kill(1)                       the others notice and go on
    account = crew.finish()
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from simulator.errors import RunError, require
from simulator.lowering.shard_regions import split
from traces.elastic.elastic_worker import TrainingJob
from traces.elastic.group_rank import Generation, take_turn
from traces.lab.cpu_throttle import Throttle
from traces.lab.namespaces import batch
from traces.lab.shaped_network import Lab

POLL_S = 0.03
WAIT_S = 120.0
"""How long anything may take before a run is given up."""

Line = Mapping[str, Any]


class ElasticProcessGroup:
    """The members' processes, and the folder through which they are told what to do."""

    def __init__(
        self,
        training: TrainingJob,
        lab: Lab | None = None,
        cores: Sequence[int] = (),
        *,
        throttles: Sequence[Throttle] = (),
        timeout_s: float = 60.0,
    ) -> None:
        """cores: those that members are pinned to, in turn. throttles: what holds each device's processes back.

        timeout_s: after which a member's silence means that it is gone.
        """
        self.training, self._lab, self._throttles, self._timeout_s = training, lab, throttles, timeout_s
        self._place = tempfile.TemporaryDirectory(prefix="shardscope-")
        self.folder = Path(self._place.name)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._generation = -1
        self._members: tuple[int, ...] = ()
        self._cut: list[int] = []
        self.marks: list[tuple[str, int, float]] = []
        """(what, generation, moment in s) of what this process did."""
        job = {"training": asdict(training), "cores": list(cores)}
        (self.folder / "job.json").write_text(json.dumps(job))

    def __enter__(self) -> ElasticProcessGroup:
        take_turn(-20)  # what starts members does not wait behind them
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        take_turn(0)
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for device in self._cut:
            self._set_link(device, "up")
        self._place.cleanup()

    def start(
        self, members: tuple[int, ...], shares: Sequence[int] = (), speeds: Sequence[float] = (), source: str = "start"
    ) -> None:
        """Start a process per member and let them train."""
        self._launch(members, self._generation + 1)
        self._tell(members, source, shares=shares, speeds=speeds)

    def expand(self, members: tuple[int, ...], policy: str, messages: Sequence[tuple[int, int]] = ()) -> None:
        """Go on with more members. messages: under "live", who sends the state to whom, as devices, in order."""
        require(policy in ("live", "restart"), "policy", policy, "it is live or restart")
        self._mark("order", self._generation + 1)
        if policy == "restart":
            self._restart(members)
            return
        joining = tuple(sorted(set(members) - set(self._members)))
        self._launch(joining, self._generation + 1)
        self._await_ready(joining)
        self._tell(members, "move", messages=[(members.index(a), members.index(b)) for a, b in messages])

    def shrink(self, members: tuple[int, ...], policy: str = "shrink") -> None:
        """Go on with fewer members."""
        require(policy in ("shrink", "restart"), "policy", policy, "it is shrink or restart")
        self._mark("order", self._generation + 1)
        if policy == "restart":
            self._restart(members)
        else:
            self._tell(members, "move")

    def kill(self, device: int, *, silently: bool = False) -> None:
        """Kill a member without notice; the others, once they have noticed, are told to go on.

        silently: first its link is cut, so that not even its system says that it is gone.
        """
        process = self._processes.pop(device)
        self._mark("kill", self._generation + 1)
        if silently:
            self._set_link(device, "down")
            self._cut.append(device)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._tell(tuple(member for member in self._members if member != device), "agree")

    def await_steps(self, count: int) -> None:
        """Return when the present generation has done `count` steps."""
        path, mark = self.folder / f"{self._members[0]}.log", _start_of_line("step", self._generation)
        self._until(lambda: path.exists() and path.read_text().count(mark) >= count, f"{count} steps")

    def finish(self) -> None:
        """Stop after the step in flight."""
        self._tell((), "start")
        for process in self._processes.values():
            process.wait(WAIT_S)

    def lines(self, device: int) -> list[Line]:
        """What a device has logged so far."""
        path = self.folder / f"{device}.log"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def _restart(self, members: tuple[int, ...]) -> None:
        self._tell(members, "checkpoint")
        for process in self._processes.values():
            process.wait(WAIT_S)
        self._mark("stop", self._generation)
        self._launch(members, self._generation)

    def _tell(
        self,
        members: tuple[int, ...],
        source: str,
        *,
        messages: Sequence[tuple[int, int]] = (),
        shares: Sequence[int] = (),
        speeds: Sequence[float] = (),
    ) -> None:
        """Write the next generation; its name appears when it is whole."""
        self._generation += 1
        even = [last - first for first, last in split(self.training.batch_size, len(members))] if members else []
        told = Generation(
            members=members,
            shares=tuple(shares) or tuple(even),
            speeds=tuple(speeds) or (1.0,) * len(members),
            source=source,
            messages=tuple(messages),
            timeout_s=self._timeout_s,
        )
        hidden = self.folder / f".{self._generation}"
        hidden.write_text(json.dumps(asdict(told)))
        hidden.rename(self.folder / f"{self._generation}.generation")
        self._members = members

    def _launch(self, devices: Sequence[int], generation: int) -> None:
        for device in devices:
            self._processes[device] = self._started(device, generation)
            if self._throttles:
                self._throttles[device].add(self._processes[device].pid)

    def _started(self, device: int, generation: int) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            "traces.elastic.group_rank",
            str(self.folder),
            str(device),
            str(generation),
            str(os.getpid()),
        ]
        interface = self._lab.interface if self._lab else "lo"
        environment = {
            **os.environ,
            "GLOO_SOCKET_IFNAME": interface,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in [str(Path(__file__).parents[2]), *sys.path] if path),
        }
        with open(self.folder / f"{device}.out", "ab") as out:
            return subprocess.Popen(
                self._lab.command(device, argv) if self._lab else argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )

    def _await_ready(self, devices: Sequence[int]) -> None:
        paths = [self.folder / f"{device}.{self._generation + 1}.ready" for device in devices]
        self._until(lambda: all(path.exists() for path in paths), "processes to start")

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            failed = [device for device, process in self._processes.items() if process.poll()]
            if failed or time.monotonic() > deadline:
                told = (self.folder / f"{failed[0]}.out").read_text()[-2000:] if failed else "nothing failed"
                raise RunError(f"waited for {what} in vain: {told}")
            time.sleep(POLL_S)

    def _set_link(self, device: int, state: str) -> None:
        """Cut a device's link, or mend it; over loopback there is none."""
        if self._lab is not None:
            batch("ip", self._lab.namespace(device), [f"link set {self._lab.interface} {state}"])

    def _mark(self, what: str, generation: int) -> None:
        self.marks.append((what, generation, time.monotonic()))


def _start_of_line(what: str, generation: int) -> str:
    """How a line of a log begins; reading all of it would take time from the members."""
    return json.dumps({"what": what, "generation": generation}).removesuffix("}") + ","
