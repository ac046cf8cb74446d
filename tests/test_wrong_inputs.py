"""Wrong inputs that would give a plausible number, or no end: each is one line that says field, value and rule."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
from small_networks import chain, switched

from benchmarks.robustness.fuzz import _dumped
from benchmarks.robustness.fuzz_formats import formats
from simulator import cli
from simulator.curve import Curve
from simulator.engine.noise import Noise
from simulator.errors import InputError, UnknownNameError

FALLING = {"points": [[1, 1e-3], [1e6, 1e-6]]}
STEP = "vgg_digits --cluster cpu-1g --devices 2"
TABLE = [
    line
    for line in (Path(__file__).parent / "wrong_inputs.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
SIMULATE = ["simulate", "vgg16", "--cluster", "cpu-1g", "--strategy", "data"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--devices", "1000000"], "devices is 1000000: a cluster has at most 131,072 of them"),
        (["--servers", "3"], "servers is 3: collective ring uses none; leave --servers out or take ps"),
        (["--servers", "1000000", "--sync", "ps"], "servers is 1000000: a cluster has at most 131,072 of them"),
        (["--effort", "2"], "effort is 2.0: strategy data does not search; leave --effort out"),
        (["--sync", "rng"], "unknown collective 'rng', did you mean 'ring'?"),
        (["--jitter", "1e9"], "jitter is 1000000000.0: it is in [0, 1]"),
    ],
)
def test_options_without_effect_or_end_are_refused(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*SIMULATE, *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and complaint in err


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: chain([1.0]).__class__(**{**vars(chain([1.0])), "dtype": "float99"}), "unknown dtype 'float99'"),
        (
            lambda: switched([1.0]).__class__(
                **{**vars(switched([1.0])), "collectives": {"all_redcue": {2: Curve(points=((1, 1), (2, 2)))}}}
            ),
            "unknown measured collective 'all_redcue', did you mean 'all_reduce'?",
        ),
        (lambda: Noise(jitter=-0.1), "jitter is -0.1"),
    ],
)
def test_unknown_names_are_refused_by_the_nouns(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises((InputError, UnknownNameError)) as caught:
        make()
    assert complaint in str(caught.value)


# Wrong command lines, each with its complaint: tests/wrong_inputs.txt.


@pytest.fixture(scope="module")
def folder_with_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    output = str(folder / "plan.json")
    assert cli.main(["partition", *STEP.split(), "--strategy", "data", "--output", output]) == 0
    return folder


@pytest.mark.parametrize(("command", "complaint"), list(zip(TABLE[::2], TABLE[1::2], strict=True)))
def test_a_wrong_command_line_gives_one_clear_line(
    command: str,
    complaint: str,
    folder_with_plan: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder_with_plan)
    words = command.replace("SIM", f"simulate {STEP}").replace("STEP", STEP)
    try:
        code = cli.main(shlex.split(words))
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and complaint.strip() in err
    assert [path.name for path in folder_with_plan.iterdir()] == ["plan.json"], "nothing is left behind"


# Wrong files: a place in a sound profile or cluster (none: the whole text), what stands there, the complaint.

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghi")
)
WRONG_FILES: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("profile", ("layers", 0, "forward_s"), 1e308, "layer 'conv': forward_s is 1e+308: it is finite"),
    ("profile", ("layers", 0, "output_bytes"), 0, "output_bytes is 0: an output has at least 1 byte"),
    ("profile", ("layers", 0, "output_bytes"), 10**400, "layers[0].output_bytes has 1340 bits: whole numbers have at"),
    ("profile", ("layers", 0, "parameter_bytes"), -5, "parameter_bytes is -5: it is finite, at least 0"),
    ("profile", ("layers", 0, "scaling", 0, "batch_size"), 8, "at the same size the layer itself has 0.001; leave one"),
    ("profile", ("batch_size",), "sixteen", 'batch_size is "sixteen": it is a whole number'),
    ("profile", ("layers", 0, "parameter_bytes"), 1e30, "parameter_bytes is 1e+30 in layers[0]: it is a whole number"),
    ("profile", ("layers", 0, "parameter_bytes"), 10**18, "parameter_bytes is 1000000000000000000: it is"),
    ("profile", ("placements",), {}, "this is a plan: a profile is needed here"),
    ("cluster", ("placements",), {}, "this is a plan: a cluster is needed here"),
    ("profile", ("dtype",), "float99", "unknown dtype 'float99', did you mean"),
    ("profile", (), "[" * 100_000, "brackets are nested more than 256 deep"),
    ("profile", (), '{"schema": ' + "9" * 4301 + "}", "not JSON that can be read, Exceeds the limit (4300 digits)"),
    ("profile", (), json.dumps({f"key{i}": 1 for i in range(40_000)}), "schema is missing"),
    ("cluster", ("links", 0, "bandwidth_bytes_per_s"), inf, "links[0].bandwidth_bytes_per_s is inf: quantities are"),
    ("cluster", ("links", 0, "line_rate_bytes_per_s"), 1e3, "s is 10000000000.0: it is at most the line rate, 1000"),
    ("cluster", ("links", 0, "message_bytes_per_s"), 1e12, "message_bytes_per_s is 1000000000000.0: it is at most the"),
    ("cluster", ("links", 0, "latency_s"), 1e308, "latency_s is 1e+308: it is finite, at least 0 and at most 1e+09"),
    ("cluster", ("links", 0, "curve"), FALLING, "more bytes do not take less time than the 0.001 s of 1; measure"),
    ("cluster", ("devices", 0, "dollars_per_hour"), -3, "dollars_per_hour is -3.0: it is finite"),
    ("cluster", ("devices", 0, "memory_bytes"), 10**400, "devices[0].memory_bytes has 1340 bits: whole"),
    (
        "cluster",
        ("collectives",),
        {"all_redcue": {2: FALLING}},
        "unknown measured collective 'all_redcue', did you mean",
    ),
    (
        "cluster",
        ("collectives",),
        {"all_reduce": {2: FALLING}},
        "all_reduce of 2: points is 1e-06 s at 1e+06 bytes: more",
    ),
    ("cluster", (), "schema: 1\nname: !!float 3\ndevices: []\n", "name is 3.0: it is a text"),
    ("cluster", (), "schema: 1\nname: !!timestamp 2020-01-01\n", "name is a date: files hold text, numbers, lists and"),
    ("cluster", (), BOMB, "it has too many entries: aliases or repeats make it larger"),
    ("cluster", (), "[" * 100_000, "line 1: brackets are nested more than 256 deep"),
    (
        "cluster",
        (),
        "".join(" " * 126 * i + "- " * 63 + "\n" for i in range(100)),
        "nested more than 64 deep, which no",
    ),
]


@pytest.mark.parametrize(("name", "where", "content", "complaint"), WRONG_FILES)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(
    name: str, where: tuple[str | int, ...], content: Any, complaint: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    kind = next(kind for kind in formats() if kind.name == name)
    path = Path(f"x{kind.suffix}")
    path.write_text(_dumped(with_value(kind.sound, where, content), kind.suffix) if where else content)
    profile, cluster = ("x.json", "cpu-1g") if name == "profile" else ("vgg_digits", "x.yaml")
    inputs = [profile, "--cluster", cluster, "--devices", "2"]
    assert cli.main(["simulate", *inputs, "--strategy", "data", "--batch-size", "512"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"shardscope: {path}: ") and complaint in err


def with_value(content: Any, where: tuple[str | int, ...], value: Any) -> Any:
    """A copy of JSON-like `content` with `value` at a place in it."""
    if not where:
        return value
    key, *rest = where
    if isinstance(content, list):
        return [with_value(part, tuple(rest), value) if i == key else part for i, part in enumerate(content)]
    return {**content, key: with_value(content.get(key), tuple(rest), value)}


def test_escapes_in_names_are_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = next(kind.sound for kind in formats() if kind.name == "profile")
    (tmp_path / "x.json").write_text(json.dumps(with_value(sound, ("model",), "\x1b[31mred\u202e")))
    step = ["--cluster", "cpu-1g", "--devices", "2", "--strategy"]
    assert cli.main(["simulate", str(tmp_path / "x.json"), *step, "data", "--batch-size", "8"]) == 0
    assert cli.main(["simulate", "\x1b[31mx", *step, "\x1b[32my"]) == 2
    out, err = capsys.readouterr()
    assert r"\x1b[31mred\u202e" in out and r"\x1b[31mx" in err
    assert "\x1b" not in out + err and "\u202e" not in out


def test_at_least_a_hundred_wrong_command_lines_are_tried() -> None:
    assert len(TABLE) >= 2 * 100 and len(set(TABLE[::2])) == len(TABLE) // 2
