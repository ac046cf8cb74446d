"""What killed processes leave: known by its owner's name, removed by the next run, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT

from simulator import files
from simulator.owned_files import has_ended, owner, remove_unfinished, temporary_folder, unfinished

KILLED = """
import os, signal, sys
from pathlib import Path
from simulator import files
from simulator.owned_files import temporary_folder

folder = temporary_folder()
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.write_text_atomic(sys.argv[1], "new")
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system says nothing of processes")


def test_what_a_killed_process_left_goes_with_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, temporary = tmp_path / "plan.json", tmp_path / "temporary"
    target.write_text("old")
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    completed = subprocess.run([sys.executable, "-c", KILLED, str(target)], env=environment, check=False)
    assert completed.returncode == -9 and target.read_text() == "old"
    (half,), (folder,) = list(tmp_path.glob(".plan.json.*.tmp")), list(temporary.iterdir())
    assert half.read_text() == "new"
    files.check_writable(target)
    assert not half.exists() and target.read_text() == "old"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with temporary_folder() as own:
        assert list(temporary.iterdir()) == [Path(own)] != [folder]
    assert not list(temporary.iterdir())


def test_files_of_living_processes_other_machines_and_users_stay(tmp_path: Path) -> None:
    living = unfinished(tmp_path / "a")
    names = (living.name, ".a.shardscope-00000000-1-1.tmp", ".a.tmp", "a.shardscope-notes.tmp", "b")
    for name in names:
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_later_process_of_the_same_number_is_another() -> None:
    machine, process, start = owner().split("-")
    assert not has_ended(owner())
    assert has_ended(f"{machine}-{process}-{int(start) - 1}")
    assert not has_ended(f"00000000-{process}-{int(start) - 1}")
