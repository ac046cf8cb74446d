"""What tests of the dashboard in a real browser share: what a person does on Explore, and what the page then says."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks.pages.browser import needs_browser, settled, until
from simulator.files import library

SCREENS = [
    pytest.mark.screens,
    needs_browser,
    pytest.mark.skipif("vgg_small" not in library(), reason="the library has no profile vgg_small"),
    pytest.mark.filterwarnings("default"),  # of the browser's driver
]
"""What marks a file of tests that see the dashboard in a browser."""


def opened(page: Any, site: str, query: str = "", path: str = "/") -> None:
    page.goto(f"{site}{path}{'?' + query if query else ''}")
    settled(page)


def state(page: Any) -> dict[str, str]:
    """The controls as the address tells them."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


def kpi(page: Any, label: str) -> str:
    text: str = page.locator(".kpis > div", has_text=label).inner_text()
    return text


def open_files(page: Any, *files: Any) -> None:
    """Choose files under Open: paths, whose page is waited for, or names with contents, which have none."""
    paths = all(isinstance(file, str) for file in files)
    with page.expect_navigation() if paths else nullcontext():
        page.set_input_files("#chosen-files", list(files))


def choose(page: Any, control: str, option: str) -> None:
    """Take the first option of a select that begins so."""
    page.click(f"#{control}")
    page.locator("[role=option]:visible", has_text=re.compile(f"^{re.escape(option)}")).first.click()


def changed(page: Any, field: str, value: str) -> None:
    until(page, "([f, v]) => new URLSearchParams(location.search).get(f) === v", [field, value])
    settled(page)
