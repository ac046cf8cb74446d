"""No option without effect, the same manners everywhere: notes, JSON with a schema, narrow terminals, completion,
interruptions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import shardscope, written_tiny
from conftest import ROOT

from partitioners import _choice_search
from simulator import files
from simulator.cli import _tables
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster
from simulator.version import version

CLUSTER = ("--cluster", "cpu-1g", "--devices", "2")
STEP = ("vgg_digits", *CLUSTER)
NETWORK = ("--model", "mine:net", "--input-shape", "1x8x8")


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = str(tmp_path / "plan.json")
    assert shardscope("partition", *STEP, "--strategy", "data", "--output", path) == 0
    return path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("simulate", *STEP, "--strategy", "data", "--sync", "rng"), "did you mean 'ring'?"),
        (("compare", *STEP, "--strategies", "model", "--sync", "rng"), "did you mean 'ring'?"),
        (("simulate", *STEP, "--plan", "PLAN", "--set", "grid=8x8"), "--set: a plan from a file is made already"),
        (("simulate", *STEP, "--plan", "PLAN", "--effort", "2"), "--effort: a plan from a file is made already"),
        (("simulate", *STEP, "--plan", "PLAN", "--seed", "2"), "--seed: nothing is drawn without --jitter"),
        (("simulate", *STEP, "--strategy", "data", "--effort", "2"), "strategy data does not search"),
        (("simulate", *STEP, "--strategy", "data", "--servers", "2"), "collective ring uses none"),
        (("simulate", *STEP, "--strategy", "data", "--compression-cost", "5ms"), "nothing is compressed"),
        (("simulate", *STEP, "--strategy", "data", "--latency", "inter=5"), "write a number with a unit"),
        (("simulate", *STEP, "--strategy", "data", "--strat", "data"), "unrecognized arguments: --strat"),
        (("compare", *STEP, "--strategies", "data,model", "--effort", "2"), "none of data, model searches"),
        (("compare", *STEP, "--strategies", "data", "--schedule", "gpipe"), "none of data pipelines"),
        (("compare", *STEP, "--strategies", "data,fsdp", "--microbatches", "4"), "none of data, fsdp pipelines"),
        (("compare", *STEP, "--strategies", "data", "--schedule", "gpip"), "did you mean 'gpipe'?"),
        (("explain", "PLAN", "--speed", "50"), "--speed: counts only together with --cluster"),
        (("clusters", "--devices", "3"), "name the cluster that has them"),
        (("search", *STEP, "--objective", "cost"), "has no prices"),
        (
            ("simulate", "vgg_digits", "--cluster", "cpu-1g", "--devices", "1000000", "--strategy", "data"),
            "at most 131,072",
        ),
        (
            ("simulate", "vgg16_v100", *CLUSTER, "--strategy", "data", "--strict"),
            "--strict: compute times were captured",
        ),
        (("partition", *STEP, "--strategy", "data", "--output", "-", "--json"), "cannot hold both"),
    ],
)
def test_an_option_that_cannot_count_is_refused_in_one_line(
    command: tuple[str, ...], message: str, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert shardscope(*(plan if word == "PLAN" else word for word in command)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("options", [["--half-precision"], ["--sync", "tree", "--bucket", "1MiB"]])
def test_options_of_gradients_that_nothing_sums_are_noted(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ", ".join(option for option in options if option.startswith("--"))
    assert shardscope("simulate", *STEP, "--strategy", "model", *options) == 0
    assert f"note: {names}: no effect, as no parameter of this plan is on two devices" in capsys.readouterr().out
    assert shardscope("simulate", *STEP, "--strategy", "data", *options) == 0
    assert "no effect" not in capsys.readouterr().out


def test_a_profile_whose_layers_miss_its_step_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    path = str(tmp_path / "short.json")
    files.write_profile(replace(files.read_profile("vgg_digits"), layers_to_step=0.5), path)
    assert shardscope("compare", path, *CLUSTER, "--strategies", "data") == 0
    assert "layers add up to 0.50 of its measured step" in capsys.readouterr().out


def test_compare_fits_into_80_columns_with_units_and_bottleneck(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulator.cli._tables.PLAIN_WIDTH", 80)
    assert shardscope("compare", *STEP, "--strategies", "data,model,hypergraph") == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("strategy"))
    rows = [line for line in lines if line.startswith(("data ", "model ", "hypergraph "))]
    assert {"strategy", "step", "peak", "memory", "fits", "bottleneck"} <= set(head.split())
    assert len(rows) == 3 and all(row.rstrip().endswith("%") and "MiB" in row and len(row) <= 80 for row in rows)


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("profiles", ["profile", "parameters", "step", "device"]),
        ("clusters", ["cluster", "intra", "inter", "what"]),
        ("scale vgg_digits --cluster cpu-1g --devices 1,2", ["sync", "devices", "step", "samples/s", "memory"]),
        ("simulate vgg_digits --cluster cpu-1g --devices 2 --strategy data", ["device", "compute", "busy", "peak"]),
        (
            "compare llama3-8b --cluster dgx-h100 --devices 8 --batch-size 16",
            ["strategy", "data", "zero", "step", "GiB", "fits"],
        ),
        ("scenario examples/spot-cluster.yaml", ["event", "policy", "lost", "devices", "samples/s"]),
    ],
)
def test_no_number_is_cut_off_on_80_columns(
    command: str, kept: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulator.cli._tables.PLAIN_WIDTH", 80)
    monkeypatch.chdir(Path(__file__).parents[1])
    assert shardscope(*command.split()) == 0
    out = capsys.readouterr().out
    head = next(line for line in out.splitlines() if line.split()[:1] == kept[:1])
    assert "…" not in out and set(kept) <= set(head.split()) and len(head.rstrip()) <= 80


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_of_80_columns_folds_sentences_between_words_and_leaves_commands_whole(tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    written = ("partition", "vgg16", "--cluster", "cpu-1g", "--strategy", "data", "--output", plan)
    assert shardscope(*written) == 0
    lines = printed_on_a_terminal("explain", plan)
    assert any(line.startswith("made by: ") and line.endswith(f"--output {plan}") for line in lines)
    assert all(len(line.rstrip()) <= 80 for line in lines if not line.startswith("made by: "))
    lines = printed_on_a_terminal("simulate", "vgg16", "--cluster", "cpu-1g", "--plan", plan)
    note = next(number for number, line in enumerate(lines) if line.startswith("note: "))
    assert lines[note + 1].startswith("  ") and not lines[note].endswith(" ")
    words = " ".join((lines[note], lines[note + 1].strip()))
    assert words.startswith("note: links at their measured share of line rate: inter 92% (92% to 92%); --efficiency")

    for wrong in (
        ("simulate", "vgg16", "--cluster", "cpu-1g"),
        ("simulate", "vgg99", "--cluster", "cpu-1g", "--plan", plan),
    ):
        message = printed_on_a_terminal(*wrong, code=2)
        assert len(message) > 1 and all(len(line) <= 80 or " " not in line.strip() for line in message)


def printed_on_a_terminal(*arguments: str, columns: int = 80, code: int = 0) -> list[str]:
    """The lines that a command prints where stdout and stderr are a terminal of so many columns."""
    master, slave = os.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb"}
    command = [sys.executable, "-c", "import sys; from simulator import cli; sys.exit(cli.main())", *arguments]
    with subprocess.Popen(command, stdout=slave, stderr=slave, cwd=ROOT, env=environment) as process:
        os.close(slave)
        text = b""
        with suppress(OSError):  # as Linux says that the other side was closed
            while read := os.read(master, 1 << 16):
                text += read
    os.close(master)
    assert process.returncode == code
    return text.decode().splitlines()


def test_what_has_no_column_to_spare_runs_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulator.cli._tables.PLAIN_WIDTH", 20)
    table = _tables.new_table("name", "seconds", "bytes", last="why")
    table.add_row("a" * 12, "1.25 s", "4.00 GiB", "some words that may be folded")
    _tables.print_table(table, ("bytes",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "seconds", "why"]
    assert lines[-1] == "left out to fit 20 columns: bytes; --json has them"
    assert lines[2].split()[:3] == ["a" * 12, "1.25", "s"]


def printed(capsys: pytest.CaptureFixture[str], *command: object) -> dict[str, Any]:
    assert shardscope(*command, "--json") == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_json_has_a_schema_and_the_keys_that_its_page_lists(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    log = tmp_path / "train.log"
    log.write_text("412ms 405ms")
    commands: dict[str, tuple[object, ...]] = {
        "simulate": (*STEP, "--strategy", "data"),
        "compare": (*STEP, "--strategies", "data"),
        "compare CARD": ("gpt2", "--cluster", "dgx-h100", "--devices", "2", "--strategies", "data"),
        "partition": (*STEP, "--strategy", "data", "--output", tmp_path / "p.json"),
        "explain": (plan,),
        "check": (log, plan),
        "accumulate": (*STEP, "--batch-size", 64),
        "scale": ("vgg_digits", "--cluster", "cpu-1g", "--devices", "1,2"),
        "search": (*STEP, "--budget", "1s"),
        "profiles": (),
        "clusters": (),
        "clusters NAME": ("p3-8xlarge",),
        "export": (plan, "--to", "ddp", *NETWORK, "--output", tmp_path / "train.py"),
        "report": (*STEP, "--strategies", "data", "--output", tmp_path / "report.html"),
    }
    page, keys = (Path(__file__).parent.parent / "docs/json.md").read_text(), dict[str, set[str]]()
    for name, arguments in commands.items():
        value = printed(capsys, name.split()[0], *arguments)
        assert value["schema"] == 1
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        listed = {word.strip("` ") for word in row.split("|")[2].split(",")}
        assert set(value) - {"schema"} == listed, name
        keys[name] = listed
        if name == "compare":
            assert set(value["strategies"][0]["report"]) == keys["simulate"]


def test_a_plan_and_a_cluster_go_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("partition", *STEP, "--strategy", "data", "--output", "-") == 0
    written = capsys.readouterr()
    assert json.loads(written.out)["model"] == "vgg_digits"
    assert "step" in written.err
    assert shardscope("clusters", "cpu-1g", "--devices", 2, "--output", "-") == 0
    path = tmp_path / "cluster.yaml"
    path.write_text(capsys.readouterr().out)
    assert read_cluster(path).workers == 2


def test_quantities_in_yaml_may_have_units(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    text = """schema: 1
name: pair
devices: [{name: a, host: a, memory_bytes: 16GiB}, {name: b, host: b, speed: 0.5}]
links:
  - {source: a, target: b, bandwidth_bytes_per_s: 25Gbps, latency_s: 5us}
  - {source: b, target: a, bandwidth_bytes_per_s: 3.125e9, latency_s: 5.0e-6}
"""
    path.write_text(text)
    cluster = read_cluster(path)
    assert {(link.bandwidth_bytes_per_s, link.latency_s) for link in cluster.links} == {(3.125e9, 5e-6)}
    assert cluster.devices[0].memory_bytes == 16 * 2**30
    path.write_text(text.replace("25Gbps", "25Gbsp"))
    with pytest.raises(InputError, match="bandwidth_bytes_per_s: bandwidth '25Gbsp': write a positive number"):
        read_cluster(path)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("--version") == 0
    assert capsys.readouterr().out == f"shardscope {version()}\n"


def test_bash_completes_commands_and_their_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("completion", "bash") == 0
    script = capsys.readouterr().out
    ask = 'COMP_WORDS=(shardscope %s); COMP_CWORD=%d; _shardscope; echo "${COMPREPLY[@]}"'
    completed = subprocess.run(
        ["bash", "-c", f"{script}\n{ask % ('comp', 1)}\n{ask % ('simulate --straggl', 2)}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.splitlines() == ["compare completion", "--straggler"]
    for shell in ("zsh", "fish"):
        assert shardscope("completion", shell) == 0
        assert "simulate" in capsys.readouterr().out


def test_capture_prints_what_it_measured_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    output = tmp_path / "p.json"
    settings = ("--batch-size", 2, "--repeats", 1, "--warmup", 0, "--output", output)
    value = printed(capsys, "capture", "vgg_digits", *settings)
    page = (Path(__file__).parent.parent / "docs/json.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `capture` |"))
    assert set(value) - {"schema"} == {word.strip("` ") for word in row.split("|")[2].split(",")}
    assert (value["schema"], value["layers"]) == (1, len(files.read_profile(str(output)).layers))


def test_ctrl_c_is_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_choice_search, "best_of_strategy", interrupt)
    assert shardscope("compare", written_tiny(tmp_path), "--cluster", "cpu-1g") == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", [["clusters"], ["clusters", "dgx-h100"], ["--help"]])
def test_a_reader_that_went_away_is_no_error(arguments: list[str]) -> None:
    script = "import sys; from simulator.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
