"""A capture by several processes at once: one profile of the median of all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from simulator.files import read_profile
from traces.capture.median_profile import median_of_ranks, rank_of_torchrun

RANK = """
from dataclasses import replace
from sys import argv
from simulator.files import read_profile, write_profile
from traces.capture.median_profile import median_of_ranks, rank_of_torchrun

rank, profile = rank_of_torchrun(), read_profile("vgg_small")
slower = 1.0 + 0.5 * rank
layers = tuple(replace(layer, forward_s=slower * layer.forward_s) for layer in profile.layers)
write_profile(median_of_ranks(replace(profile, layers=layers, step_s=0.1 * slower)), f"{argv[1]}/{rank}.json")
"""


def test_without_torchrun_a_process_captures_alone() -> None:
    profile = read_profile("vgg_small")
    assert rank_of_torchrun() == 0 and median_of_ranks(profile) is profile


@pytest.mark.usefixtures("forked_python")
def test_processes_of_torchrun_have_the_median_of_all(tmp_path: Path) -> None:
    """Three, of which the second and the third take 1.5 and 2 times as long as the first."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(script), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"}
    completed = subprocess.run([sys.executable, *run], env=environment, capture_output=True, text=True, timeout=600)
    assert completed.returncode == 0, completed.stderr[-2000:]
    alone, together = read_profile("vgg_small"), [read_profile(tmp_path / f"{number}.json") for number in range(3)]
    assert together[0] == together[1] == together[2]
    assert together[0].step_s == pytest.approx(0.15)
    assert [layer.forward_s for layer in together[0].layers] == pytest.approx([1.5 * x.forward_s for x in alone.layers])
    assert [layer.backward_s for layer in together[0].layers] == [layer.backward_s for layer in alone.layers]
    assert together[0].notes.endswith("; the median of 3 processes that measured at once")
