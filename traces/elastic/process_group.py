"""An elastic process group: processes that train one network together in a lab, more or fewer from time to time.

with ElasticProcessGroup(training, lab, cores) as group:
    group.start((0,))
    group.change((0, 1))               processes start beside the training, then one pause
    group.change((0, 1, 2, 3), "restart")
    group.change((0, 1))
    group.kill(1)                      the others detect it and go on
    group.finish()

A part of a pause ends when the last rank has ended it, by the ranks' logs, so the parts add up to it: from the end of
the last step before to the moment when every rank can begin the next one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from simulator.elastic.reconfiguration import DETECT, FRAMEWORK, GROUPS, LAUNCH, LEAVE, MOVE, READ, STOP, WRITE
from simulator.errors import RunError, require
from simulator.owned_files import temporary_folder
from traces.elastic.elastic_worker import TrainingJob, even_shares
from traces.elastic.group_rank import Generation
from traces.lab.child_processes import kill_processes, preempt_ranks, start_process
from traces.lab.shaped_network import Lab

POLL_S = 0.03
WAIT_S = 120.0
"""How long anything may take before a run is given up."""

Line = Mapping[str, Any]
"""What a rank logged: what ended in which generation at_s seconds of CLOCK_MONOTONIC, and of a step its loss, ..."""
PARTS = {
    "live": (LEAVE, GROUPS, MOVE),
    "shrink": (LEAVE, GROUPS, MOVE),
    "recover": (DETECT, LEAVE, GROUPS, MOVE),
    "restart": (WRITE, STOP, LAUNCH, FRAMEWORK, GROUPS, READ),
}
Logs = Mapping[int, Sequence[Line]]
"""What each device logged."""


class ElasticProcessGroup:
    """One process per device, and the folder in which they read who trains in which generation.

    marks: (what, generation, moment in seconds of CLOCK_MONOTONIC) of what this process did. processes: by device.
    """

    def __init__(
        self,
        training: TrainingJob,
        lab: Lab | None = None,
        cores: Sequence[int] = (),
        *,
        timeout_s: float = 60.0,
    ) -> None:
        """cores: those that processes are pinned to, in turn. timeout_s: after which a silent rank counts as lost."""
        self.training, self._lab, self._timeout_s = training, lab, timeout_s
        self._temporary = temporary_folder()
        self.folder = Path(self._temporary.name)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._generation = -1
        self._devices: tuple[int, ...] = ()
        self.marks: list[tuple[str, int, float]] = []
        job = {"training": asdict(training), "cores": list(cores)}
        (self.folder / "job.json").write_text(json.dumps(job))

    def __enter__(self) -> ElasticProcessGroup:
        preempt_ranks(True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        preempt_ranks(False)
        kill_processes(self.processes.values())
        self._temporary.cleanup()

    def start(self, devices: tuple[int, ...], shares: Sequence[int] = ()) -> None:
        """Start a process per device and let them train. shares: samples of a step by device, even by default."""
        self._launch(devices, self._generation + 1)
        self._announce(devices, "start", shares=shares)

    def change(self, devices: tuple[int, ...], policy: str = "live", messages: Sequence[tuple[int, int]] = ()) -> None:
        """Go on with more or fewer devices.

        policy: "live", where processes that join start beside the training, or "restart". messages: under "live", which
        device sends the state to which that joins, in order.
        """
        require(policy in ("live", "restart"), "policy", policy, "it is live or restart")
        self._mark("order", self._generation + 1)
        if policy == "restart":
            self._restart(devices)
            return
        joining = tuple(sorted(set(devices) - set(self._devices)))
        self._launch(joining, self._generation + 1)
        ready = [self.folder / f"{device}.{self._generation + 1}.ready" for device in joining]
        self._until(lambda: all(path.exists() for path in ready), "processes to start")
        self._announce(devices, "move", messages=[(devices.index(a), devices.index(b)) for a, b in messages])

    def kill(self, device: int) -> None:
        """Kill a device's process without notice; the others go on without it once they have detected that."""
        process = self.processes.pop(device)
        self._mark("kill", self._generation + 1)
        kill_processes([process])
        self._announce(tuple(other for other in self._devices if other != device), "agree")

    def await_steps(self, count: int) -> None:
        """Return when the present generation has done `count` steps."""
        path = self.folder / f"{self._devices[0]}.log"
        line = json.dumps({"what": "step", "generation": self._generation})
        mark = line.removesuffix("}") + ","  # how it begins; parsing all of them would take time from the ranks
        self._until(lambda: path.exists() and path.read_text().count(mark) >= count, f"{count} steps")

    def finish(self) -> None:
        """Stop after the step in flight."""
        self._announce((), "start")
        for process in self.processes.values():
            process.wait(WAIT_S)

    def lines(self, device: int) -> list[Line]:
        """What a device has logged so far."""
        path = self.folder / f"{device}.log"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def _restart(self, devices: tuple[int, ...]) -> None:
        self._announce(devices, "checkpoint")
        for process in self.processes.values():
            process.wait(WAIT_S)
        self._mark("stop", self._generation)
        self._launch(devices, self._generation)

    def _announce(
        self,
        devices: tuple[int, ...],
        source: str,
        *,
        messages: Sequence[tuple[int, int]] = (),
        shares: Sequence[int] = (),
    ) -> None:
        """Write the next generation; its file appears when it is whole."""
        self._generation += 1
        generation = Generation(
            devices=devices,
            shares=tuple(shares) or even_shares(self.training.batch_size, len(devices)),
            source=source,
            messages=tuple(messages),
            timeout_s=self._timeout_s,
        )
        hidden = self.folder / f".{self._generation}"
        hidden.write_text(json.dumps(asdict(generation)))
        hidden.rename(self.folder / f"{self._generation}.generation")
        self._devices = devices

    def _launch(self, devices: Sequence[int], generation: int) -> None:
        for device in devices:
            numbers = [str(device), str(generation), str(os.getpid())]
            argv = [sys.executable, "-m", "traces.elastic.group_rank", str(self.folder), *numbers]
            log = self.folder / f"{device}.out"
            self.processes[device] = start_process(argv, log, lab=self._lab, device=device)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            failed = [device for device, process in self.processes.items() if process.poll()]
            if failed or time.monotonic() > deadline:
                error = (self.folder / f"{failed[0]}.out").read_text()[-2000:] if failed else "nothing failed"
                raise RunError(f"waited for {what} in vain: {error}")
            time.sleep(POLL_S)

    def _mark(self, what: str, generation: int) -> None:
        self.marks.append((what, generation, time.monotonic()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """A membership change as it was measured: from `before` to `after` devices under a policy, in seconds.

    parts_s: of the pause. ended_s: when it was over, by CLOCK_MONOTONIC.
    """

    policy: str
    before: int
    after: int
    parts_s: Mapping[str, float]
    ended_s: float

    @property
    def pause_s(self) -> float:
        """Seconds without training: the sum of the parts."""
        return sum(self.parts_s.values())


def measured_change(group: ElasticProcessGroup, generation: int, policy: str) -> MembershipChange:
    """How the group came to `generation`. Raises RunError when the logs do not show it."""
    logs = logs_of(group)
    old, new = steps_of(logs, generation - 1), steps_of(logs, generation)
    if not old or not new:
        raise RunError(f"generation {generation} did not train after generation {generation - 1}; look at its logs")
    marks = {(what, number): at_s for what, number, at_s in group.marks}
    began_s = marks.get(("kill", generation), last_step_s(old))
    parts_s = {}
    for part in PARTS[policy]:
        moment_s = marks.get((part, generation)) or end_s({device: logs[device] for device in new}, part, generation)
        parts_s[part] = max(moment_s - began_s, 0.0)
        began_s = max(began_s, moment_s)
    return MembershipChange(policy=policy, before=len(old), after=len(new), parts_s=parts_s, ended_s=began_s)


def logs_of(group: ElasticProcessGroup) -> Logs:
    """What the devices of a group have logged so far."""
    return {int(path.stem): group.lines(int(path.stem)) for path in group.folder.glob("*.log")}


def steps_of(logs: Logs, generation: int) -> Logs:
    """The steps of a generation, of the devices that made some."""
    by_device = {
        device: [line for line in lines if line["what"] == "step" and line["generation"] == generation]
        for device, lines in logs.items()
    }
    return {device: steps for device, steps in by_device.items() if steps}


def last_step_s(steps: Logs) -> float:
    """When the last of some steps ended, in seconds of CLOCK_MONOTONIC."""
    return max(float(lines[-1]["at_s"]) for lines in steps.values())


def end_s(logs: Logs, part: str, generation: int) -> float:
    """When the last device ended a part, in seconds of CLOCK_MONOTONIC."""
    lines = (line for lines in logs.values() for line in lines if line["what"] == part)
    return max(float(line["at_s"]) for line in lines if line["generation"] == generation)
