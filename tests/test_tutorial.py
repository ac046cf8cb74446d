"""Every command of docs/tutorial.md runs, in order, in a folder that holds examples/mine.py only."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from conftest import ROOT

pytestmark = pytest.mark.usefixtures("forked_python")

pytest.importorskip("torch", reason="torch is not installed; make test installs it")
COMMANDS = re.findall(r"^    ((?:shardscope|torchrun) .+)$", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE)
PROGRAM = "import sys; from simulator.cli import main; sys.argv[0] = 'shardscope'; sys.exit(main())"
PREFIXES = {"shardscope": [sys.executable, "-c", PROGRAM], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def argv(command: str) -> list[str]:
    """What starts a command; one round of a capture shows that it runs as well as three do."""
    first, *rest = shlex.split(command.replace("--repeats 3", "--repeats 1"))
    return [*PREFIXES[first], *rest]


def served(command: str, folder: Path) -> bool:
    """Whether the page that a command serves answers, on a free port."""
    process = subprocess.Popen(
        [*argv(command), "--port", "0"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout
        ends_s = time.monotonic() + 600
        for line in process.stdout:
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                with urlopen(address[0], timeout=600) as page:
                    return bool(page.status == 200)
            assert time.monotonic() < ends_s
        return False
    finally:
        process.terminate()
        process.communicate(timeout=600)


def test_the_tutorial_goes_from_capture_to_a_real_run() -> None:
    order = ["capture", "clusters", "compare", "partition", "simulate", "explain", "report", "dashboard", "export"]
    assert [command.split()[1] for command in COMMANDS] == [*order, "--standalone", "execute", "--standalone"]


def test_every_command_runs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples/mine.py", tmp_path)
    for command in COMMANDS:
        if command.startswith("shardscope dashboard"):
            assert served(command, tmp_path)
            continue
        completed = subprocess.run(
            argv(command), cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False
        )
        assert completed.returncode == 0, f"{command}\n{completed.stderr[-2000:]}"
    names = {path.name for path in tmp_path.iterdir()}
    assert {"net.json", "pair.yaml", "data.json", "step.json", "report.html", "train.py", "both.json"} <= names
