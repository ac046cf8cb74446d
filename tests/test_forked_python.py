"""A forked process is what a started one is: arguments, folder, environment, streams, exit, children, namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPopen

from simulator.network.topologies import Wire, flat_switch
from traces.lab import namespaces
from traces.lab.shaped_network import Lab

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel is not Linux: processes are started anew")
STARTED = subprocess.Popen
SELF = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ.get('WORD'), os.getppid(), __name__, sys.path[:2])"
CHILD = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {SELF!r}], check=True).returncode)"
PROGRAMS = {
    "arguments": ["-c", SELF, "a", "b c"],
    "script": ["{folder}/script.py", "d"],
    "module": ["-m", "script", "e"],
    "input": ["-c", "import sys; print(sys.stdin.read().upper())"],
    "number": ["-c", "import sys; sys.exit(7)"],
    "words": ["-c", "import sys; sys.exit('no more')"],
    "exception": ["-c", "1 / 0"],
    "error stream": ["-c", "import sys; print('x', file=sys.stderr); print('y')"],
    "unbuffered": ["-u", "{folder}/script.py"],
    "other option": ["-W", "ignore", "-c", SELF],
}


def ended(kind: Any, folder: Path, argv: list[str], **options: Any) -> tuple[Any, ...]:
    """Exit code, output and last line of the errors."""
    environment = {**os.environ, "WORD": "ω", "PYTHONPATH": str(folder)}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *(word.format(folder=folder) for word in argv)]
    with kind(command, cwd=folder, env=environment, text=True, **streams, **options) as process:
        out, err = process.communicate("given\n", timeout=600)
    return process.returncode, out, err.splitlines()[-1:]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forked_process_is_as_a_started_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SELF)
    assert ended(ForkedPopen, tmp_path, PROGRAMS[name]) == ended(STARTED, tmp_path, PROGRAMS[name])


def test_what_it_starts_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked process forks further ones, whose parent it is."""
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)
    code, out, errors = ended(ForkedPopen, tmp_path, ["-c", "import os; print(os.getpid(), flush=True)\n" + CHILD])
    parent, _, words = out.partition("\n")
    assert (code, errors) == (0, []) and parent in words.split() and str(os.getpid()) not in words.split()


def test_it_is_killed_as_any_other(tmp_path: Path) -> None:
    program = "import time; print('ready', flush=True); time.sleep(900)"
    with ForkedPopen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n" and process.poll() is None
        assert os.getsid(process.pid) == process.pid
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(600) == -signal.SIGKILL


@pytest.mark.skipif(namespaces.available() is not None, reason=f"no network lab: {namespaces.available()}")
def test_it_enters_the_namespace_of_its_device() -> None:
    program = "import socket; print(sorted(name for _, name in socket.if_nameindex()))"
    with Lab(flat_switch(2, Wire(bandwidth_bytes_per_s=1e6))) as lab:
        command = lab.command(1, [sys.executable, "-c", program])
        seen = [kind(command, stdout=subprocess.PIPE).communicate()[0] for kind in (ForkedPopen, STARTED)]
    assert seen[0] == seen[1] and b"eth0" in seen[0]
