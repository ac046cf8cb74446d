"""Sweep in a real browser: what a person sees and does."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dashboard_screens import SCREENS

from benchmarks.pages.browser import shot, until, violations
from dashboard.state.scenarios import shipped_scenarios
from dashboard.state.store import Store, bundled
from dashboard.state.sweeps import configuration_of
from dashboard.state.validations import at_hand

pytestmark = SCREENS


@pytest.fixture(scope="module")
def store() -> Store:
    profiles = bundled()
    return Store({"vgg_small": profiles["vgg_small"], **profiles}, validations=at_hand(), scenarios=shipped_scenarios())


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a table as values; empty cells are left out."""
    with path.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    return [{name: value_of(cell) for name, cell in row.items() if cell not in (None, "")} for row in table]


def value_of(cell: Any) -> Any:
    """What a cell of text means."""
    if not isinstance(cell, str):
        return cell
    with suppress(ValueError):
        return int(cell)
    with suppress(ValueError):
        return float(cell)
    return {"True": True, "False": False}.get(cell, cell)


def test_a_sweep_streams_survives_a_reload_and_cancels(page: Any, site: str, store: Store) -> None:
    page.goto(f"{site}/sweep?strategies=data,pipeline,owt")
    page.fill("#sweep-x-values", "1Gbps..64Gbps by x2")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep-progress >> text=/of 21 points/")
    page.reload()
    page.wait_for_selector("#sweep-progress >> text=/of 21 points/")
    until(page, "() => document.querySelector('#sweep-progress').innerText.endsWith('.')", timeout_s=180)
    page.wait_for_timeout(1000)
    shot(page, "sweep")
    assert violations(page) == []
    with page.expect_download() as download:
        page.click("#sweep-files a[href$='.csv']")
    assert re.fullmatch(r"sweep-\d+\.csv", download.value.suggested_filename)
    rows = rows_of(Path(download.value.path()))
    assert [row["number"] for row in rows] == list(range(21))
    for row in rows[::5]:
        again = store.outcome(configuration_of(row, store.default(), store)).run
        assert again is not None and row["step_s"] == pytest.approx(again.report.step_s)
        assert row["communication_bytes"] == pytest.approx(again.report.communication_bytes.total)
    page.locator("#sweep-rows .ag-row[row-index='0'] [col-id=strategy]").click()
    page.wait_for_selector("#sweep-explore a")
    page.locator("#sweep-parallel-graph").scroll_into_view_if_needed()
    plot = page.locator("#sweep-parallel-graph .nsewdrag").bounding_box()
    page.mouse.move(plot["x"] + 2, plot["y"] + plot["height"] * 0.45)  # a box at the first axis, around what is low
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * 0.1, plot["y"] + plot["height"] - 2, steps=4)
    page.mouse.up()
    until(page, "() => { const n = document.querySelectorAll('#sweep-rows .ag-center-cols-container .ag-row').length;"
          " return n === 14; }")  # two strategies of three, seven bandwidths  # fmt: skip
    page.fill("#sweep-x-values", "1Gbps..64Gbps by x1.05")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep-progress >> text=/of 258 points/")
    page.click("#sweep-cancel")
    page.wait_for_selector("#sweep-progress >> text=Cancelled", timeout=60_000)
    assert page.locator("#sweep-list button").count() == 2
    page.locator("#sweep-list button").first.click()
    page.wait_for_selector("#sweep-progress >> text=/21 of 21 points/")
    page.fill("#sweep-x-values", "nonsense")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep-problem >> text=cannot be swept")


SMEARED = """() => {
  const words = document.querySelectorAll("#sweep-parallel-graph .annotation-text");
  const boxes = [...words].map((each) => each.getBoundingClientRect());
  return boxes.length && boxes.filter((one, i) => boxes.some((other, j) => i < j && one.left < other.right &&
    other.left < one.right && one.top < other.bottom && other.top < one.bottom)).length;
}"""


def test_the_ends_of_all_axes_are_read_on_a_phone(browser: Any, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{site}/sweep?strategies=data,owt&x=devices&x-values=2,4")
    page.click("#sweep-start")
    until(page, "() => document.querySelector('#sweep-progress')?.innerText.startsWith('4 of 4')")
    until(page, "() => document.querySelectorAll('#sweep-parallel-graph .annotation-text').length >= 14")
    page.wait_for_timeout(500)
    assert page.evaluate(SMEARED) == 0
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.close()
