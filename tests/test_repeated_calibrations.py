"""Whether calibrations agree: what each says of its passes is read back and sets how far two of them may differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from benchmarks.machines.repeated_calibrations import agreement, stated_ranges
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.runtime import Runtime
from traces.calibrate.command import _notes

CLUSTER = read_cluster("cpu-1g", devices=2)
RUNTIME = Runtime(
    name="measured", send_cpu_s_per_byte=1e-9, receive_cpu_s_per_byte=1e-9, busy_latency_s=1e-3, pass_overhead_s=1e-4
)


def test_the_ranges_that_a_calibration_states_are_read_back() -> None:
    passes = [((CLUSTER, RUNTIME), 1e-9), ((CLUSTER, replace(RUNTIME, send_cpu_s_per_byte=1.5e-9)), 1e-9)]
    assert stated_ranges(tuple(_notes(passes))) == {"core time per byte sent": 0.40}  # 0.5 of 1.25
    assert stated_ranges(tuple(_notes(passes[:1]))) == {}


@pytest.mark.parametrize(("range_of_passes", "agree"), [(1.05, 0), (1.5, 1)])
def test_two_calibrations_agree_within_what_either_states(tmp_path: Path, range_of_passes: float, agree: int) -> None:
    """They differ by 18 % in the core time that a byte takes: more than 10 %, less than passes 40 % apart."""
    slower = replace(RUNTIME, send_cpu_s_per_byte=range_of_passes * 1e-9)
    passes = [((CLUSTER, RUNTIME), 1e-9), ((CLUSTER, slower), 1e-9)]
    noted = replace(CLUSTER, sources=(*CLUSTER.sources, *_notes(passes)))
    write_cluster(noted, tmp_path / "1.yaml", RUNTIME)
    write_cluster(CLUSTER, tmp_path / "2.yaml", replace(RUNTIME, send_cpu_s_per_byte=1.2e-9))
    rows = agreement(sorted(tmp_path.glob("*.yaml"))).splitlines()
    assert next(row for row in rows if "per byte sent" in row).endswith(f"| {agree} of 1 |")
    assert next(row for row in rows if "per byte received" in row).endswith("| 1 of 1 |")
