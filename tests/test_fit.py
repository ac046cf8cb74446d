"""Efficiencies fitted to measured steps, and the published measurements held out."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import shardscope
from test_closed_forms import chain

from simulator import files
from simulator.errors import InputError, UnknownNameError
from simulator.network.catalogue import read_cluster
from simulator.plan import Synchronisation
from traces.calibrate.bandwidth_fit import MeasuredStep, fit, fit_one, read_measured

CLUSTER = "p3-8xlarge"  # nodes of 4, 1.25e9 bytes/s between them
LATER = Synchronisation(overlap=False)


def measured(devices: int, efficiency: float, factor: float = 1.0) -> MeasuredStep:
    """A step that was measured where links between nodes give this efficiency, times `factor`."""
    blank = MeasuredStep(profile=chain(4, batch=48), devices=devices, batch_size=48, step_s=1.0, synchronisation=LATER)
    step_s = blank.step_s_at(CLUSTER, "inter", efficiency) * factor
    return MeasuredStep(profile=blank.profile, devices=devices, batch_size=48, step_s=step_s, synchronisation=LATER)


@pytest.mark.parametrize("efficiency", [0.02, 0.31, 0.999])
def test_the_efficiency_comes_back(efficiency: float) -> None:
    assert fit_one(measured(8, efficiency), CLUSTER, "inter") == pytest.approx(efficiency, rel=1e-6)
    fitted = fit([measured(8, efficiency), measured(16, efficiency)], CLUSTER, "inter")
    assert fitted.efficiency == pytest.approx(efficiency, rel=1e-5)


def test_several_steps_meet_in_the_middle() -> None:
    steps = [measured(8, 0.2), measured(8, 0.4)]
    fitted = fit(steps, CLUSTER, "inter")
    assert fitted.alone == pytest.approx((0.2, 0.4), rel=1e-6)
    assert 0.2 < fitted.efficiency < 0.4
    assert fitted.steps_s[0] == fitted.steps_s[1]
    assert fitted.steps_s[0] ** 2 == pytest.approx(steps[0].step_s * steps[1].step_s, rel=1e-4)


def test_a_step_that_no_bandwidth_explains() -> None:
    with pytest.raises(InputError, match="to all of the bandwidth of inter links"):
        fit_one(measured(8, 1.0, factor=0.5), CLUSTER, "inter")
    with pytest.raises(UnknownNameError, match="unknown link tier"):
        fit_one(measured(8, 0.5), CLUSTER, "outer")


@pytest.fixture
def profile_file(tmp_path: Path) -> Path:
    files.write_profile(chain(4, batch=48), tmp_path / "chain.json")
    return tmp_path / "chain.json"


def test_calibrate_from_a_file(profile_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, output = tmp_path / "measured.csv", tmp_path / "mine.yaml"
    lines = [f"{profile_file}, {n}, 48, {measured(n, 0.25).step_s!r}, ring, no" for n in (8, 16)]
    table.write_text("profile, devices, batch_size, step_s, sync, overlap\n" + "\n".join(lines) + "\n")
    assert shardscope("calibrate", CLUSTER, "--from", table, "-o", output) == 0
    assert "inter links give training 0.250 of their line rate" in capsys.readouterr().out
    cluster = read_cluster(output)
    assert cluster.workers == 16
    assert cluster.sources[-1] == "inter.efficiency 0.25: fitted to 2 measured steps of measured.csv"
    rates = {link.tier: link.bandwidth_bytes_per_s for link in cluster.links}
    assert rates == {"intra": 0.512e11, "inter": pytest.approx(0.25 * 1.25e9, rel=1e-4)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("profile,devices,batch_size,step_s\n", "no line but the header"),
        ("profile,devices,batch_size\n", "column step_s is missing"),
        ("profile,device,batch_size,step_s\n", "'device', did you mean 'devices'?"),
        ("profile,devices,batch_size,step_s\nPROFILE,many,8,1\n", "line 2: devices and batch_size are whole numbers"),
        ("profile,devices,batch_size,step_s\nPROFILE,8\n", "line 2: 2 cells: the first line names 4 columns"),
        ("profile,devices,batch_size,step_s\nPROFILE,8,48,0\n", "line 2: devices, batch_size and step_s are positive"),
        ("profile,devices,batch_size,step_s,overlap\nPROFILE,8,48,1,half\n", "overlap is 'half': it is yes or no"),
        ("profile,devices,batch_size,step_s\nnothing,8,48,1\n", "unknown profile (and no such file) 'nothing'"),
    ],
)
def test_wrong_tables_are_refused(
    text: str, complaint: str, profile_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "measured.csv"
    table.write_text(text.replace("PROFILE", str(profile_file)))
    assert shardscope("calibrate", CLUSTER, "--from", table) == 2
    assert complaint in capsys.readouterr().err


def test_a_good_file_reads_defaults(profile_file: Path, tmp_path: Path) -> None:
    table = tmp_path / "measured.csv"
    table.write_text(f"profile,devices,batch_size,step_s,sync\n{profile_file},8,48,0.5,\n")
    (step,) = read_measured(table)
    assert (step.devices, step.batch_size, step.step_s, step.synchronisation) == (8, 48, 0.5, Synchronisation())


def test_published_overheads_held_out(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PipeDream's figure 1: calibrated on VGG-16 alone, AlexNet and ResNet-50 are met within 8 % of the step."""
    from benchmarks.networks import holdout

    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))
    rows = list(holdout.rows())
    assert [(row.model, row.devices) for row in rows] == [(m, n) for n in (8, 16, 32) for m in ("alexnet", "resnet50")]
    assert max(abs(row.step_error) for row in rows) < 0.08
    assert max(abs(row.overhead - row.published_overhead) for row in rows) < 0.03
    assert all(0.25 < row.efficiency < 0.32 for row in rows)
