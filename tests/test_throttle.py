"""Processes held to a share of a core, and the times that are fitted to what they did."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from benchmarks.studies import cpu_throttle
from benchmarks.studies.balanced_shares import MeasuredShares, fitted
from simulator.lowering.costs.sample_shares import split_by_time

REASON = cpu_throttle.available()
pytestmark = pytest.mark.alone
SPIN = "import sys; print(flush=True)\nwhile True: pass"


@pytest.mark.skipif(REASON is not None, reason=f"cannot throttle: {REASON}")
def test_a_throttled_process_gets_its_share() -> None:
    with cpu_throttle.Throttle("test", 0.25) as held:
        process = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            held.add(process.pid)
            used_s, began = _cpu_s(process.pid), time.monotonic()
            time.sleep(0.8)
            share = (_cpu_s(process.pid) - used_s) / (time.monotonic() - began)
        finally:
            process.kill()
            process.communicate()
    assert 0.05 < share < 0.32, "on a busy machine it may get less than its share, never much more"


def test_times_are_fitted_through_two_outcomes() -> None:
    """1 + 0.1 x, 2 + 0.2 x; all end together at 5 s for 40 and 15 samples."""
    first = MeasuredShares(shares=(10, 10), compute_s=(2.0, 4.0), step_s=4.0)
    second = MeasuredShares(shares=(20, 5), compute_s=(3.0, 3.0), step_s=3.0)
    seconds = fitted(first, second)
    assert [time_of(30) for time_of in seconds] == pytest.approx([4.0, 8.0])
    assert split_by_time(55, seconds) == (40, 15)
    assert first.load_balance_ratio == pytest.approx(4 / 3)


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
