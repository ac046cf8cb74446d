"""What README.md and docs/*.md paste is what their commands print."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT

from benchmarks.pages.pasted import PAGES, PastedBlock, PastedCommand, blocks, differences, elided, rerun, rewritten
from simulator import cli, files

pytestmark = pytest.mark.usefixtures("forked_python")

BLOCKS = [block for page in PAGES for block in blocks(page)]
LINES = [
    (page, line)
    for page in PAGES
    for line in re.findall(r"^(?:\$ |    )((?:sudo )?(?:shardscope|python -m) [^\n]+)", page.read_text(), re.MULTILINE)
]
MEASURE = re.compile(r"\| *[-+]?\d[\d.,]* ?(?:s|ms|us|%|x|[KMG]i?B)\b")
"""A cell of a Markdown table that begins with a quantity."""


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.barrier], ids=lambda b: b.name)
def test_pages_say_what_the_program_says(block: PastedBlock) -> None:
    """Within TOLERANCE; `python -m benchmarks.pages.pasted --write` brings a page up to date."""
    for old, new in zip(block.commands, rerun(block), strict=True):
        assert not differences(old.lines, new.lines), "benchmarks.pages.pasted --write brings the page up to date"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.barrier], ids=lambda b: b.name)
def test_blocks_that_are_not_checked_say_why(block: PastedBlock) -> None:
    assert len(block.reason.split()) >= 2


def commands_of_pages() -> list[str]:
    """Every documented command line, pasted output or not, once."""
    return list(
        dict.fromkeys([each.command for block in BLOCKS for each in block.commands] + [line for _, line in LINES])
    )


@pytest.mark.parametrize("command", commands_of_pages())
def test_documented_commands_parse(command: str) -> None:
    words = PastedCommand(command=command, lines=()).argv
    if words[0] == "shardscope":
        module = cli.commands()[words[1]]
        assert hasattr(module, "main") or cli.parse(words[1:])
    elif words[:2] == ["python", "-m"]:
        assert find_spec(words[2]), f"there is no module {words[2]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_measured_table_stands_without_its_command(page: Path) -> None:
    """Neither one of the command line's, with rules, nor a Markdown table of quantities."""
    text = page.read_text()
    inside = [range(block.start, block.end) for block in blocks(page)]
    marks = [*re.finditer("─{3}[^\n]*", text), *MEASURE.finditer(text)]
    bare = [match for match in marks if not any(match.start() in span for span in inside)]
    assert not [f"line {text.count(chr(10), 0, match.start()) + 1}" for match in bare]


def test_imported_profiles_are_as_listed() -> None:
    """docs/profiles.md names every imported profile, its batch and its ratio of layers to step."""
    page = (ROOT / "docs" / "profiles.md").read_text()
    page = page.partition("<!-- output: python -m benchmarks.library.typical_scaling")[0]
    rows = re.findall(r"^\| (\w+_\w+) \|.*", page, re.MULTILINE)
    profiles = {name: files.read_profile(name) for name in files.library()}
    assert sorted(rows) == sorted(name for name, profile in profiles.items() if not profile.date)
    for name in rows:
        line = re.search(rf"^\| {name} \|.*", page, re.MULTILINE)
        assert line
        _, _, _, batch, ratio = (cell.strip() for cell in line[0].split("|")[1:6])
        assert int(re.match(r"\d+", batch)[0]) == profiles[name].batch_size  # type: ignore[index]
        known = profiles[name].layers_to_step
        assert ratio.startswith("not measured" if known is None else f"{known:.3f}")


def test_the_summary_quotes_the_page() -> None:
    """Every percentage and factor of "ours" stands below it, perhaps with more digits."""
    text = (ROOT / "docs" / "reproductions.md").read_text()
    table = re.search(r"\| published \| ours \|.*?<!-- end -->", text, re.DOTALL)
    assert table
    ours = " ".join(line.split("|")[2] for line in table[0].splitlines()[2:-1])
    pages = text.replace(table[0], "") + "".join(
        (ROOT / "docs" / name).read_text() for name in ("scaling.md", "convergence.md")
    )
    for number, unit in re.findall(r"(\d+\.\d+) ?(%|x)", ours):
        digits = len(number.partition(".")[2])
        quoted = [float(other) for other in re.findall(rf"(\d+\.\d+){unit}", pages)]
        assert any(abs(float(number) - other) <= 0.501 * 10**-digits for other in quoted), f"{number} {unit}"


def test_numbers_may_differ_a_little_and_words_not_at_all() -> None:
    line = ("pipeline   3.32 s  25.7%  layer node34  4 devices",)
    for same in ("pipeline 3.33 s 25.8% layer node34 4 devices", "pipeline  3.32 s  25.6%   layer node34  4 devices"):
        assert not differences(line, (same,))
    for other in ("3.67 s", "3.32 ms"):
        assert differences(line, (line[0].replace("3.32 s", other),))
    assert differences(line, (line[0].replace("node34", "node35"),))
    assert differences(line, (line[0].replace("4 devices", "5 devices"),))
    assert differences(line, (line[0].replace("pipeline", "data"),))
    assert differences(line, ()) and differences(("─────", "98%"), ("───", "96%"))
    assert not differences(("─────", "98%"), ("───", "97%"))


def test_left_out_lines_stay_left_out() -> None:
    assert elided(list("abcdef"), ["1", "...", "2", "3"]) == ["a", "...", "e", "f"]
    assert elided(list("abc"), ["1", "2"]) == list("abc")


def test_a_page_is_written_and_then_up_to_date(tmp_path: Path) -> None:
    """Both forms of a block, two commands in a fence, a barrier; what stands around them is kept."""
    page = tmp_path / "page.md"
    text = "# A\n```console\n$ shardscope pareto x    # why\n$ shardscope best x\nold\n```\nB\n"
    text += "<!-- slow: an hour -->\n<!-- output: python -m benchmarks.studies.unequal -->\n"
    text += "old\nolder\n<!-- end -->\nC\n"
    page.write_text(text)
    fence, comment = blocks(page)
    assert [each.lines for each in fence.commands] == [(), ("old",)] and fence.commands[0].argv[-1] == "x"
    assert comment.barrier == "slow" and comment.commands[0].lines == ("old", "older") and not fence.barrier
    new = [PastedCommand(command=fence.commands[1].command, lines=("new",))]
    made = [(fence, [fence.commands[0], *new]), (comment, [PastedCommand(command="c", lines=("1",))])]
    page.write_text(rewritten(text, made))
    assert page.read_text() == text.replace("old\nolder", "1").replace("old", "new")
    assert shlex.split(blocks(page)[0].commands[1].command) == ["shardscope", "best", "x"]


def test_an_empty_block_waits_for_its_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- output: shardscope profiles -->\n<!-- end -->\n")
    (block,) = blocks(page)
    made = rerun(block)
    assert differences(block.commands[0].lines, made[0].lines)
    assert rewritten(page.read_text(), [(block, made)]).count("\n") > 4
