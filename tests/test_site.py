"""The site's pages: in the navigation, linked to what is there, and its examples run. `make site` builds it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

import shardscope
from simulator import cli

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def in_navigation(entry: Any) -> Iterator[str]:
    """The files below an entry of mkdocs' nav."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from in_navigation(inner)


def anchors(page: Path) -> set[str]:
    """What a link into a page may end in: its headings as mkdocs spells them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


def test_every_page_stands_once_in_the_navigation() -> None:
    assert sorted(in_navigation(SITE["nav"])) == [page.name for page in PAGES]
    assert SITE["strict"]


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_to_what_is_there(page: Path) -> None:
    """The site holds docs/ alone, so its pages link nothing else of the repository."""
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert page.parent != DOCS or DOCS in linked.resolve().parents, f"{target} is not part of the site"
        assert not anchor or anchor in anchors(linked), target


def test_every_picture_is_on_a_page() -> None:
    shown = {target for page in PAGES for target in LINK.findall(page.read_text())}
    assert {picture.name for picture in DOCS.glob("*.png")} <= shown


def test_every_command_has_a_section() -> None:
    assert set(cli.commands()) <= anchors(DOCS / "commands.md")


def test_the_examples_in_python_run_and_use_every_public_name() -> None:
    page = (DOCS / "api.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    exec(compile(code, "docs/api.md", "exec"), {})
    assert set(re.findall(r"shardscope\.(\w+)", code)) == set(shardscope.__all__)
    assert set(re.findall(r"(?m)^### (\w+)$", page)) == set(shardscope.__all__)


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A head, (of 2) words\n\n```\n# no head\n```\n[x](gone.md) [y](#a-head-of-2-words)\n")
    assert anchors(page) == {"a-head-of-2-words"}
    with pytest.raises(AssertionError, match="gone"):
        test_links_lead_to_what_is_there(page)


def test_the_notebook_goes_from_a_configuration_to_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cells run in order; nothing that they printed is stored, so that nothing there is stale."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS / "plan.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not [cell for cell in code if cell["outputs"]]
    names: dict[str, Any] = {}
    for cell in code:
        exec(compile("".join(cell["source"]), "plan.ipynb", "exec"), names)
    assert names["best"] in names["fitting"] and {run.report.fits for run in names["fitting"].values()} == {True}
    assert len(names["figure"].data) > 2 and len(names["steps"].data) > 1
    assert (tmp_path / "launch.txt").read_text() in capsys.readouterr().out


def test_the_readme_is_short_and_narrow() -> None:
    """Outside its tables and outputs it is read in a terminal of 80 columns; each source of accuracy is a line."""
    text = re.sub(r"^<!-- output.*?^<!-- end", "", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(text.splitlines()) <= 106
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).splitlines()
    assert not [line for line in prose if len(line) > 82 and not line.startswith("|")]


def test_files_that_are_shown_are_shown_as_they_are() -> None:
    shown = re.findall(
        r"`([\w/]+\.py)`:\n\n```python\n(.*?)^```", (DOCS / "add.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert len(shown) == 3
    for path, text in shown:
        assert (ROOT / path).read_text() == text


def test_every_field_of_a_file_says_what_it_means() -> None:
    assert "| left out |\n" not in (DOCS / "files.md").read_text() + (DOCS / "api.md").read_text()
