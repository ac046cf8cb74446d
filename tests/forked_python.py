"""Python processes for tests, forked from one that has imported torch: a process starts in milliseconds, not seconds.

    test       with ForkedPopen in place of subprocess.Popen: commands of this interpreter go to the template
    template   python tests/forked_python.py SOCKET: imports PRELOADED once, then forks a process for every request
    process    runs -m MODULE, -c PROGRAM or a script as a new interpreter does: with its own arguments, environment,
               folder, standard streams, session and network namespace

The kernel makes the test the parent of the process ("child subreaper", prctl(2)), so that it is waited for and killed
as any other. Commands that are not this interpreter's, or give it further options, are started as ever.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = (
    "torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel", "torch.profiler",
    "torch.distributed.launcher",
    "numpy", "networkx", "pydantic", "yaml", "rich.console", "rich.table", "plotly.graph_objects", "kahypar",
    "simulator.run", "simulator.files", "simulator.network.catalogue", "partitioners.hypergraph",
    "traces.runs.executor.execute", "traces.runs.torch_runtimes.ddp", "traces.runs.torch_runtimes.pipelining",
)  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
LIMIT_BYTES = 1 << 17
"""Of a request; the environment is most of it."""
_PR_SET_CHILD_SUBREAPER, _CLONE_NEWNET = 36, 0x40000000


_Popen = subprocess.Popen


class ForkedPopen(subprocess.Popen[Any]):
    """subprocess.Popen that lets the template start what is a command of this interpreter."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: bool, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: int, shell: bool, *others: Any,
    ) -> None:  # fmt: skip
        pipes, start_new_session = others[:6], bool(others[-2])
        words = [] if isinstance(args, str | bytes) else [os.fspath(word) for word in args]
        namespace = words[3] if words[:3] == ["ip", "netns", "exec"] else ""
        command = words[4:] if namespace else words
        if executable or preexec_fn or pass_fds or shell or not _plain(command):
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *others
            )
            return
        request = {
            "argv": command[1:], "cwd": os.fspath(cwd or os.getcwd()), "env": dict(os.environ if env is None else env),
            "session": start_new_session, "namespace": namespace,
        }  # fmt: skip
        streams = [own if own >= 0 else number for number, own in enumerate((pipes[0], pipes[3], pipes[5]))]
        socket.send_fds(_template(), [json.dumps(request).encode()], streams)
        self.pid = int(_template().recv(64))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _plain(command: list[str]) -> bool:
    """Whether it is this interpreter with -u, -m, -c or a script, and no other option."""
    return command[:1] == [sys.executable] and (command[1] in ("-u", "-m", "-c") or command[1][0] != "-")


@cache
def _template() -> socket.socket:
    """A connection to this process's template, which ends with it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if _SITE and os.fork() == 0:  # this process was forked from a template, and so is its own
        own.close()
        atexit._clear()  # its parent's business
        _live(other)
    if not _SITE:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
        argv = [sys.executable, __file__, str(other.fileno())]
        process = _Popen(argv, pass_fds=[other.fileno()], env=environment, stdin=subprocess.DEVNULL)
        atexit.register(process.wait)
    atexit.register(own.close)
    other.close()
    return own


_SITE: list[str] = []
"""Where a template and what it forks find what is installed; empty in the test."""


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """The template's life: None when its test has ended; a request in every process that it forks."""
    while True:
        data, streams, _, _ = socket.recv_fds(requests, LIMIT_BYTES, 3)
        if not data:
            return None
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:  # until the test is the parent
                time.sleep(1e-4)
            requests.send(str(os.getpid()).encode())
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
                os.close(descriptor)
            requests.close()
            return dict(json.loads(data))
        for descriptor in streams:
            os.close(descriptor)
        os.waitpid(between, 0)


def run(request: dict[str, Any]) -> None:
    """What a new interpreter does with the request's arguments."""
    _template.cache_clear()
    if request["session"]:
        os.setsid()
    if request["namespace"]:
        with open(Path("/run/netns") / request["namespace"]) as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {request['namespace']}")
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["argv"][0] == "-u":
        request["argv"].pop(0)
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    option, *others = request["argv"]
    first = {"-m": request["cwd"], "-c": ""}.get(option, str(Path(option).resolve().parent))
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [first, *filter(None, paths), *_SITE]
    importlib.invalidate_caches()
    if option == "-m":
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        main = types.ModuleType("__main__")
        sys.argv, sys.modules["__main__"] = ["-c", *others[1:]], main
        exec(compile(others[0], "<string>", "exec"), vars(main))
    else:
        sys.argv = [option, *others]
        runpy.run_path(option, run_name="__main__")


def _live(requests: socket.socket) -> NoReturn:
    """What a template does, and every process that it forks: all but freeing memory at the end, which takes longest."""
    request, code = serve(requests), 0
    try:
        if request:
            run(request)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _SITE += sys.path[2:]  # without this file's folder and ROOT
    setattr(subprocess, "Popen", ForkedPopen)  # noqa: B010, before a module of torch's takes the other
    for module in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()
    _live(socket.socket(fileno=int(sys.argv[1])))
