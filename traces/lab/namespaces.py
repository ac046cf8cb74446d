"""Linux network namespaces that a process owns: made, listed, and removed with the processes in them.

A name begins with its owner, as the names of temporary files do, so that what a killed one left can be removed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from simulator.errors import RunError
from simulator.owned_files import has_ended, owner

PREFIX = "shardscope"
GONE_S = 10.0
"""How long removed namespaces and killed processes may take to go."""

_NAMESPACES = Path("/run/netns")


def available() -> str | None:
    """None where a lab can be made, else the plain reason why not."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's alone, and this is {sys.platform}"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} command: install iproute2"
    if os.geteuid() != 0:
        return "making network namespaces needs root: run with sudo"
    probe = f"{owned_prefix()}-probe"
    try:
        call("ip", "netns", "add", probe)
    except RunError as error:
        return f"this machine forbids network namespaces ({error}); in a container, run it privileged"
    remove([probe])
    return None


def owned_prefix() -> str:
    """What the names of this process's namespaces begin with."""
    return f"{PREFIX}-{owner()}"


def listed(prefix: str = PREFIX) -> list[str]:
    """Names of the existing namespaces that begin with `prefix`."""
    return sorted(path.name for path in _NAMESPACES.glob(f"{prefix}-*"))


def remove_leftovers() -> list[str]:
    """Remove the namespaces of labs whose owner no longer lives, with the processes in them; their names."""
    names = [name for name in listed() if not owner_lives(name)]
    remove(names)
    return names


def call(*argv: str, text: str | None = None) -> str:
    """What a command prints, given `text`; RunError with its complaint where it fails."""
    completed = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise RunError(f"network lab: `{' '.join(argv)}` failed: {completed.stderr.strip() or completed.returncode}")
    return completed.stdout


def batch(tool: str, namespace: str, lines: Iterable[str]) -> None:
    """Run `lines` of `ip` or `tc` (the tool) inside a namespace; RunError at the first that fails."""
    call(tool, "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


def owner_lives(name: str) -> bool:
    """Whether the process that made a namespace lives."""
    match = re.match(rf"{PREFIX}-(\w+-\d+-\d+)-", name)
    return match is None or not has_ended(match[1])


def remove(names: Sequence[str]) -> None:
    """Delete namespaces with their links and kill what runs in them; returns when all are gone.

    Raises RunError when they do not go within GONE_S seconds.
    """
    with ExitStack() as stack:
        # Held open until the end, so that no new namespace can be taken for one of these.
        held = [os.open(_NAMESPACES / name, os.O_RDONLY) for name in names if (_NAMESPACES / name).exists()]
        for descriptor in held:
            stack.callback(os.close, descriptor)
        inodes = {os.fstat(descriptor).st_ino for descriptor in held}
        for name in names:  # names go first, so that no more processes come in
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        _wait_until(lambda: not set(names) & set(listed()), f"namespaces {', '.join(names)} do not go away")
        _wait_until(lambda: not _killed_inside(inodes), f"processes in {', '.join(names)} do not die")


def _killed_inside(inodes: Container[int]) -> bool:
    """Kill every process in the namespaces of these inodes; whether there was any."""
    killed = False
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):  # it has ended meanwhile
            if path.stat().st_ino in inodes:
                killed = True
                os.kill(int(path.parts[2]), signal.SIGKILL)
    return killed


def _wait_until(done: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + GONE_S
    while not done():
        if time.monotonic() > deadline:
            raise RunError(f"network lab: {complaint} within {GONE_S:g} s")
        time.sleep(0.01)
