"""The doctor: what it says of three runs and their predictions, in closed cases; with root, three real steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator import cli
from simulator.cli.doctor import report
from simulator.device_names import alike, unlike
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.network.topologies import Wire, flat_switch
from traces.results.diagnosis import Checkup, diagnose

pytestmark = pytest.mark.usefixtures("forked_python")


def checkup(name: str, predicted_s: float, actual_s: float, spread_s: float = 0.001, **spent: Any) -> Checkup:
    return Checkup(name=name, predicted_s=predicted_s, actual_s=actual_s, spread_s=spread_s, spent=spent)


GOOD = checkup("alone", 0.100, 0.102, compute=(0.100, 0.102))


def test_good_predictions_have_nothing_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    data = checkup("data parallel", 0.150, 0.155, compute=(0.1, 0.1), waits=(0.0, 0.005))
    assert diagnose(GOOD, (data,)) == []
    assert report((GOOD, data), []) == 0
    assert "predictions can be trusted here" in capsys.readouterr().out


def test_a_profile_that_is_off_is_named_once() -> None:
    alone = checkup("alone", 0.08, 0.10, compute=(0.08, 0.10))
    data = checkup("data parallel", 0.12, 0.15, compute=(0.08, 0.10))
    (line,) = diagnose(alone, (data,))
    assert line.startswith("the profile is off: its layers alone take 20% less than a step does here now")
    assert "the machine is slower than when it was captured, or fewer ranks computed then" in line
    (line,) = diagnose(checkup("alone", 0.12, 0.10), ())
    assert "take 20% more" in line and "is faster than when it was captured, or more ranks computed then" in line


def test_what_is_off_beyond_the_profile_is_named_with_its_seconds() -> None:
    spent = {"compute": (0.1, 0.102), "all-reduces": (0.05, 0.090), "waits": (0.0, 0.003)}
    (line,) = diagnose(GOOD, (checkup("data parallel", 0.150, 0.195, **spent),))
    assert line.startswith("data parallel is off by -22% beyond the profile, most of it in all-reduces (+40.0 ms)")
    assert "--plan" in line
    spent = {"compute": (0.1, 0.07), "messages": (0.05, 0.05), "waits": (0.0, 0.001)}
    (line,) = diagnose(GOOD, (checkup("pipeline", 0.15, 0.12, **spent),))
    assert "most of it in compute (-30.0 ms)" in line


def test_unsteady_steps_are_said() -> None:
    (line,) = diagnose(checkup("alone", 0.1, 0.1, spread_s=0.02), ())
    assert line.startswith("steps alone differ by 20% among themselves")


def test_what_is_off_by_less_than_its_own_steps_differ_is_no_curves_fault() -> None:
    def data(predicted_s: float) -> Checkup:
        return checkup("data parallel", predicted_s, 0.2, spread_s=0.06, waits=(0.0, 0.05))

    (line,) = diagnose(GOOD, (data(0.15),))
    assert line.startswith("steps data parallel differ by 30% among themselves")
    unsteady, off = diagnose(GOOD, (data(0.1),))
    assert unsteady == line and off.startswith("data parallel is off by -49% beyond the profile, most of it in waits")
    assert not diagnose(GOOD, (data(0.19),))


def test_two_small_errors_that_add_up_are_said() -> None:
    (line,) = diagnose(checkup("alone", 0.093, 0.1), (checkup("pipeline", 0.086, 0.1),))
    assert line.startswith("pipeline is off by -14%: -7% by the profile and -8% by the rest")
    assert report((), [line]) == 1


def test_three_real_steps_over_loopback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed; make test installs it")
    write_cluster(flat_switch(2, Wire(bandwidth_bytes_per_s=1e9)), tmp_path / "pair.yaml")
    code = cli.main(["doctor", "vgg_digits", str(tmp_path / "pair.yaml"), "--network", "loopback"])
    out = capsys.readouterr().out
    assert code in (0, 1) and all(name in out for name in ("alone", "data parallel", "pipeline"))
    assert (code == 0) == ("can be trusted here" in out)


OWN = """
from torch import nn


def net(num_classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, num_classes))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 4), nn.Linear(6, 4)

    def forward(self, left, right):
        return self.first(left) + self.second(right)
"""


@pytest.mark.parametrize(
    ("model", "options", "steps"),
    [
        ("own_net:net", ("--input-shape", "3x4x4", "--classes", "7"), ("alone", "data parallel", "pipeline")),
        ("own_net:Pair", ("--input", "left=8", "--input", "right=6"), ("alone",)),
    ],
)
def test_a_network_of_ones_own_is_built_as_it_was_captured(
    model: str,
    options: tuple[str, ...],
    steps: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch", reason="torch is not installed; make test installs it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_net.py").write_text(OWN)
    write_cluster(flat_switch(2, Wire(bandwidth_bytes_per_s=1e9)), Path("pair.yaml"))
    capture = ["capture", model, "--batch-size", "8", *options, "--repeats", "2", "--warmup", "0", "--output", "p.json"]
    assert cli.main(capture) == 0
    capsys.readouterr()
    assert cli.main(["doctor", "p.json", "pair.yaml", "--network", "loopback", "--json"]) in (0, 1)
    out, err = capsys.readouterr()
    assert tuple(each["name"] for each in json.loads(out)["steps"]) == steps
    assert ("only the step alone is taken: the network reads several inputs" in err) == (len(steps) == 1)


def test_under_torchrun_an_error_of_all_is_said_once_and_ends_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / rank))
        assert cli.main(["check", "absent.json", "absent.json"]) == 2
        line = json.loads((tmp_path / rank).read_text())["message"]
        assert line.startswith("shardscope: ") and "absent" in line
        assert " ".join(capsys.readouterr().err.split()) == (line if rank == "0" else "")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("CPU, 1 thread", "Intel(R) Xeon(R) Processor @ 2.10GHz, 1 thread", True),
        ("AMD EPYC 7763, 1 thread", "AMD EPYC 9654, 4 threads", True),
        ("Tesla V100-SXM2-32GB", "NVIDIA V100 16GB PCIe", True),
        ("Tesla V100", "NVIDIA A100 40GB SXM4", False),
        ("NVIDIA H100 80GB SXM5", "AMD EPYC 7763, 1 thread", False),
        ("", "Tesla V100", True),
    ],
)
def test_devices_are_told_apart_by_the_words_of_their_models(first: str, second: str, expected: bool) -> None:
    assert alike(first, second) == alike(second, first) == expected


def test_cpus_of_the_preset_are_this_machine_and_gpus_are_not() -> None:
    here = "CPU AMD EPYC, 1 thread"
    assert unlike(read_cluster("cpu-1g", devices=2), here) == ()
    assert unlike(read_cluster("azure-v100-10g", devices=2), here) == ("NVIDIA V100 16GB PCIe",)
