"""The twenty questions of docs/guides.md: each is answered in time, with numbers as an expert expects, or refused."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import shardscope
from conftest import ROOT

MOST_S = 10.0
"""Seconds of one core."""
NUMBER = r"([\d.,]+)"
EXPECTED: dict[int, tuple[tuple[str, float, float], ...]] = {
    1: ((rf"; {NUMBER} tokens/s", 8 * 5_500, 8 * 11_000), (rf"needs {NUMBER} GiB of 80.0 GiB", 20, 80)),
    2: ((rf"\${NUMBER} per million tokens", 0.3, 0.7),),
    5: ((rf"ZeRO-3.*full recomputation(?s:.*)border: \S+ needs {NUMBER} GiB of 16.0 GiB", 14, 16),),
    6: (
        (rf"does not fit: \S+ needs {NUMBER} GiB", 81, 1000),
        (rf"--microbatches 4 \({NUMBER} GiB, step", 20, 80),
    ),
    7: ((rf"step {NUMBER} ms", 0.95 * 642, 1.05 * 642),),
    8: ((rf"(?m)^ring +8 .* {NUMBER}x", 7, 8), (rf"(?m)^ring +16 .* {NUMBER}x", 3, 13)),
    9: ((rf"step {NUMBER} ms", 0.99 * 547, 1.01 * 547), (r"limited by inter links \((\d+)%", 80, 100)),
    10: ((rf"step {NUMBER} ms", 0.99 * 191, 1.01 * 191),),
    11: ((rf"best: pipeline.*, step {NUMBER} s", 1, 2), (rf"(?m)^data +\S+ +{NUMBER} s", 2, 4)),
    12: ((rf"(?m)^ring +8 .* {NUMBER}x", 4, 8), (rf"(?m)^ps +8 .* {NUMBER}x", 0.3, 4)),
    13: ((rf"step {NUMBER} ms", 1.49 * 93.6, 1.6 * 93.6),),
    14: ((rf"best: {NUMBER} micro-batches", 4, 512), (rf"fits: needs {NUMBER} GiB", 1, 4)),
    15: ((rf"(?m)^ring +8 .*\${NUMBER} *$", 2, 8), (rf"(?m)^ring +8 .* {NUMBER} min", 10, 20)),
    16: ((rf"step {NUMBER} ms", 0.99 * 310, 1.01 * 310),),
    18: ((r"live +.*", 0, 0),),
    19: ((rf"bottleneck: inter links .*\ninter links with twice the bandwidth: {NUMBER}x faster", 1.5, 2),),
}
"""By question: what its output has, and between which numbers."""
REFUSED = {
    3: "no grid of them fits llama3-405b",
    4: "no grid of them fits llama3-1b",
    17: "--strict: compute times were",
}


def questions() -> Iterator[tuple[int, list[str]]]:
    """The number of each question with its commands."""
    text = (ROOT / "docs" / "guides.md").read_text()
    for part in re.split(r"(?m)^\*\*(?=\d+\. )", text)[1:]:
        yield int(part.partition(".")[0]), re.findall(r"(?m)^    shardscope (.+)$", part)


def test_there_are_twenty() -> None:
    assert [number for number, _ in questions()] == list(range(1, 21))
    assert set(EXPECTED) | set(REFUSED) | {20} == set(range(1, 21))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("guides")
    (made / "examples").symlink_to(ROOT / "examples")
    return made


@pytest.mark.parametrize(("number", "commands"), list(questions()), ids=str)
def test_a_question_is_answered_as_an_expert_does(
    number: int, commands: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    if number == 20 and not (folder / "plan.json").exists():
        assert shardscope(*shlex.split(dict(questions())[19][0])) == 0
    for command in commands:
        began_s = time.process_time()
        code = shardscope(*shlex.split(command))
        assert time.process_time() - began_s < MOST_S
        assert code == (2 if number in REFUSED else 0)
    out, err = capsys.readouterr()
    assert REFUSED.get(number, "") in err
    for pattern, low, high in EXPECTED.get(number, ()):
        match = re.search(pattern, out)
        assert match, f"{pattern} is not in {out}"
        assert not match.groups() or low <= float(match[1].replace(",", "")) <= high, match[0]
    if number == 20:
        assert re.search(r"(?m)^PREDICTED_S = [01]\.\d+ ", (folder / "train.py").read_text())
