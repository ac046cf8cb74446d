"""The command line: what it prints, what it changes, and one clear line for wrong input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import MB, REPORT_KEYS, report, shardscope, written_tiny
from conftest import ROOT

from simulator import cli, collectives, files
from simulator.lowering.schedules import SCHEDULES
from simulator.network import catalogue

HEAVY = ("torch", "dash", "plotly", "pydantic", "kahypar", "numpy", "networkx", "rich", "yaml", "simpy")
OTHERS = ("simulator.cli.simulate", "simulator.cli.sweep", "importlib.metadata", "inspect")
"""Nor these, for the list of commands."""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return written_tiny(tmp_path)


# Help.


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom simulator.cli import main\n"
        f"try: main(['--help'])\nfinally: print([name for name in {HEAVY + OTHERS} if name in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines()[-1] == "[]"


def test_every_file_is_a_command_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"capture", "clusters", "compare", "import", "profiles", "simulate"} <= set(cli.commands())
    assert shardscope("--help") == 0
    text = capsys.readouterr().out
    for name, module in cli.commands().items():
        first = (module.__doc__ or "").splitlines()[0].rstrip(".")
        assert re.search(rf"^    {name}\s+{re.escape(first.split()[0])}", text, re.MULTILINE)
        assert first in " ".join(text.split())
        assert hasattr(module, "main") or (module.add_arguments and module.run)


@pytest.mark.parametrize("name", [name for name, module in cli.commands().items() if hasattr(module, "run")])
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope(name, "--help") == 0
    assert (cli.commands()[name].__doc__ or "").splitlines()[0] in capsys.readouterr().out


def test_help_names_every_schedule_and_every_collective(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # argparse would break lines at hyphens
    assert shardscope("simulate", "--help") == 0
    words = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert words >= {*SCHEDULES, *collectives.names()}


# simulate.


def test_one_device_takes_the_sum_of_the_layers(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, "simulate", tiny, "--cluster", "cpu-1g", "--devices", 1, "--strategy", "data")
    assert printed.keys() >= REPORT_KEYS
    assert printed["step_s"] == pytest.approx(4 * 13e-3, rel=1e-9)
    assert printed["communication_bytes"].keys() == {
        *("total", "forward", "backward", "synchronisation", "parameters", "matrix"),
    }
    assert printed["communication_bytes"]["total"] == 0


def test_speed_divides_compute_time(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--devices", 1, "--strategy", "data", "--speed", 4)
    assert report(capsys, *command)["step_s"] == pytest.approx(13e-3, rel=1e-9)


def test_overrides_of_bandwidth_and_latency_change_the_step_as_the_ring_formula_says(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--devices", 2, "--strategy", "data")
    line_rate = ("--no-overlap", "--efficiency", "inter=1")

    def step(*more: str) -> float:
        return float(report(capsys, *command, *line_rate, *more)["step_s"])

    usual = step()  # 1 Gb/s: 2 (N-1)/N x 4 MB over it, N = 2
    assert step("--bandwidth", "inter=2Gbps") - usual == pytest.approx(4 * MB / 250e6 - 4 * MB / 125e6, rel=1e-9)
    # 2 (N-1) rounds over two links each, of 25 us before and 125 us now.
    assert step("--latency", "inter=125us") - usual == pytest.approx(2 * 2 * 100e-6, rel=1e-9)


def test_a_parameter_server_is_added_when_there_is_none(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--strategy", "data", "--sync", "ps")
    printed = report(capsys, *command)
    assert [device["name"] for device in printed["devices"]] == ["host0", "host1", "host2", "host3", "server0"]
    assert printed["communication_bytes"]["synchronisation"] == 2 * 4 * 4 * MB  # 2 m |w|
    assert len(report(capsys, *command, "--servers", 2)["devices"]) == 6


def test_the_optimizer_decides_memory(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--devices", 1, "--strategy", "data", "--optimizer")
    peak = {name: report(capsys, *command, name)["peak_memory_bytes"] for name in ("sgd", "momentum", "adam")}
    assert peak["momentum"] - peak["sgd"] == 4 * MB
    assert peak["adam"] - peak["sgd"] == 8 * MB


def test_bucket_zero_sends_each_layer_alone(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--devices", 2, "--strategy", "data", "--bucket")
    tasks = {size: report(capsys, *command, size)["tasks"] for size in ("25MiB", "0")}
    assert tasks["0"] > tasks["25MiB"]


def test_a_plan_that_was_written_gives_the_same_report(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--devices", 2)
    planned = ("--strategy", "pipeline", "--microbatches", 4, "--schedule", "gpipe")
    first = report(capsys, *command, *planned, "--plan-out", tmp_path / "plan.json")
    plan = files.read_plan(tmp_path / "plan.json")
    assert (plan.strategy, plan.microbatches, plan.schedule) == ("pipeline", 4, "gpipe")
    assert report(capsys, *command, "--plan", tmp_path / "plan.json") == first
    changed = report(capsys, *command, "--plan", tmp_path / "plan.json", "--microbatches", 2)
    assert changed["microbatches"] == 2


def test_the_same_command_prints_the_same_bytes(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", tiny, "--cluster", "p3-8xlarge", "--strategy", "pipeline", "--microbatches", 4)
    assert shardscope(*command) == shardscope(*command) == 0
    text = capsys.readouterr().out
    assert text[: len(text) // 2] == text[len(text) // 2 :]


def test_the_report_names_what_a_person_looks_for(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--strategy", "data", "--verbose", "--trace-out", trace)
    assert shardscope(*command) == 0
    text = capsys.readouterr().out
    for word in ("step", "samples/s", "bubble", "load balance ratio", "synchronisation", "peak memory", "limited by"):
        assert word in text
    assert "0 host0" in text and "host0->switch" in text
    assert f"trace: {trace}" in text
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize(("cluster", "noted"), [("cpu-1g", False), ("dgx-h100", True)])
def test_a_note_says_when_times_come_from_another_device(
    cluster: str, noted: bool, tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shardscope("simulate", tiny, "--cluster", cluster, "--strategy", "data") == 0
    text = " ".join(capsys.readouterr().out.split())
    note = "compute times were captured on Acme CPU, 1 thread, not NVIDIA H100 80GB SXM5; scale them with --speed"
    assert (note in text) == noted
    assert shardscope("simulate", tiny, "--cluster", cluster, "--strategy", "data", "--json") == 0
    captured = capsys.readouterr()
    assert (note in captured.err) == noted
    assert json.loads(captured.out)["model"] == "tiny"


# Lists.


def test_clusters_lists_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("clusters") == 0
    text = capsys.readouterr().out
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert [name for name in names if name in catalogue.presets()] == list(catalogue.presets())


def test_a_cluster_can_be_written_changed_and_read(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    assert shardscope("clusters", "p3-8xlarge", "--devices", 2, "--output", path) == 0
    assert "intra.bandwidth_bytes_per_s: AWS EC2 P3 instance page" in " ".join(capsys.readouterr().out.split())
    plan = ("--strategy", "data")
    expected = report(capsys, "simulate", tiny, "--cluster", "p3-8xlarge", "--devices", 2, *plan)
    assert report(capsys, "simulate", tiny, "--cluster", path, *plan) == expected
    path.write_text(path.read_text().replace("bandwidth_bytes_per_s: 51200000000.0", "bandwidth_bytes_per_s: 3e3"))
    assert report(capsys, "simulate", tiny, "--cluster", path, *plan)["step_s"] > 100 * expected["step_s"]


def test_profiles_lists_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("profiles") == 0
    text = capsys.readouterr().out
    for name in files.library():
        assert re.search(rf"^{name} ", text, re.MULTILINE)


def test_import_writes_a_profile(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (graph,) = (shared_data / "pipedream").rglob("*vgg16*.txt")
    output = tmp_path / "vgg16.json"
    assert shardscope("import", graph, "--batch-size", 128, "--output", output) == 0
    profile = files.read_profile(output)
    assert profile.batch_size == 128
    assert str(len(profile.layers)) in capsys.readouterr().out


def test_capture_without_torch_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "traces"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert shardscope("capture", "vgg16", "--batch-size", 1, "--device", "cpu", "--output", "x.json") == 2
    assert (
        f"needs torch, which is not installed: {sys.executable} -m pip install 'torch>=2.6'" in capsys.readouterr().err
    )


# Wrong input.


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("simulat TINY", "invalid choice: 'simulat', did you mean 'simulate'? (choose from 'accumulate',"),
        ("zzz TINY --hlep", "invalid choice: 'zzz' (choose from 'accumulate',"),
        ("--timout 3 simulate TINY", "--timout is not an option, did you mean --timeout?"),
        ("simulate TINY", "the following arguments are required: --cluster"),
        ("simulate TINY --cluser cpu-1g", "required: --cluster; --cluser is not an option, did you mean --cluster?"),
        ("capture vgg16 --bach-size 8", "--output; --bach-size is not an option, did you mean --batch-size?"),
        ("simulate TINY --cluster cpu-1g", "one of --strategy, --plan, --launch and --config is required"),
        (
            "simulate nothing --cluster cpu-1g --strategy data",
            "unknown profile or model card (and no such file) 'nothing'",
        ),
        ("simulate no.json --cluster cpu-1g --strategy data", "no.json: No such file or directory"),
        ("simulate CUT --cluster cpu-1g --strategy data", "column 1: not valid JSON"),
        ("simulate TINY --cluster cpu-2g --strategy data", "'cpu-2g', did you mean 'cpu-1g'?"),
        ("simulate TINY --cluster cpu-1g --strategy dat", "unknown strategy 'dat', did you mean 'data'?"),
        ("simulate TINY --cluster cpu-1g --strategy data --sync rang", "did you mean 'ring'?"),
        ("simulate TINY --cluster cpu-1g --strategy data --schedule 1f2b", "did you mean '1f1b'?"),
        ("simulate TINY --cluster cpu-1g --strategy data --devices 0", "'0' is not a whole number of at least 1"),
        ("simulate TINY --cluster cpu-1g --strategy data --speed -1", "'-1' is not a number above 0"),
        ("simulate TINY --cluster cpu-1g --strategy data --speed fast", "'fast' is not a number above 0"),
        ("simulate TINY --cluster cpu-1g --strategy data --bandwidth 3Gbps", "'3Gbps' is not TIER=VALUE"),
        (
            "simulate TINY --cluster cpu-1g --strategy data --bandwidth inter=3",
            "bandwidth '3': write a positive number",
        ),
        ("simulate TINY --cluster cpu-1g --strategy data --bandwidth outer=3Gbps", "'outer', did you mean 'inter'?"),
        ("simulate TINY --cluster cpu-1g --strategy data --latency inter=-3us", "time '-3us': write a number"),
        ("simulate TINY --cluster cpu-1g --strategy data --bucket big", "size 'big': write a number with a unit"),
        ("simulate TINY --cluster cpu-1g --strategy data --devices 9 --batch-size 8", "batch_size 8 in 1 micro-batch"),
        ("simulate TINY --cluster cpu-1g --strategy pipeline --devices 5 --set judged=false", "'tiny' has 4 layers"),
        ("simulate TINY --cluster cpu-1g --strategy pipeline --microbatches 3", "does not divide into 3 micro-batches"),
        (
            "simulate TINY --cluster cpu-1g --devices 1 --plan PLAN",
            "on device 3, but cluster 'cpu-1g' has workers 0 to 0",
        ),
        ("simulate TINY --cluster cpu-1g --plan TINY", "this is a profile: a plan is needed here"),
        ("simulate TINY --cluster MINE --strategy data --sync ps --servers 1", "is a file; list its servers there"),
        ("compare TINY --cluster cpu-1g --strategies data,dat", "unknown strategy 'dat'"),
        ("compare TINY --cluster cpu-1g --strategies ,", "it names at least one"),
        ("clusters --output mine.yaml", "name the cluster to write"),
        ("import TINY --output x.json", "this is a profile, which needs no import; known: kineto, nccl_tests"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    arguments: str, complaint: str, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    places = {
        "TINY": tiny,
        "CUT": tmp_path / "cut.json",
        "PLAN": tmp_path / "plan.json",
        "MINE": tmp_path / "mine.yaml",
    }
    (tmp_path / "cut.json").write_text('{\n"schema": 1,\n')
    assert shardscope("simulate", tiny, "--cluster", "cpu-1g", "--strategy", "data", "--plan-out", places["PLAN"]) == 0
    assert shardscope("clusters", "cpu-1g", "--output", places["MINE"]) == 0
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    capsys.readouterr()
    outputs = ["--plan-out", "p.json", "--trace-out", "t.json"] if arguments.startswith("simulate ") else []
    assert shardscope(*(places.get(word, word) for word in arguments.split()), *outputs) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("shardscope")
    assert printed.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_not_there_is_named_as_the_user_wrote_it(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("simulate", tiny, "--cluster", "cpu-1g", "--strategy", "data", "--plan-out", "/no/where/plan.json")
    assert shardscope(*command) == 2
    printed = capsys.readouterr().err
    assert printed == "shardscope: output /no/where/plan.json: folder /no/where is not there; name another\n"
