"""Wrong inputs that would give a plausible number, or no end: each is one line that says field, value and rule."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from small_networks import chain, switched

from simulator import cli
from simulator.cluster import Curve
from simulator.engine.noise import Noise
from simulator.errors import InputError, UnknownNameError

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
        (["--latency", "inter=5"], "time '5': write a number with a unit, e.g. 5us"),
        (["--devices", "1000000"], "devices is 1000000: a cluster has at most 16,384 of them"),
        (["--servers", "3"], "servers is 3: collective ring uses none; leave --servers out or take ps"),
        (["--servers", "1000000", "--sync", "ps"], "servers is 1000000: a cluster has at most 16,384 of them"),
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


def test_at_least_a_hundred_wrong_command_lines_are_tried() -> None:
    assert len(TABLE) >= 2 * 100 and len(set(TABLE[::2])) == len(TABLE) // 2
