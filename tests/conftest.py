"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPopen
from hypothesis import settings

# Tests run beside each other, one on each core: threads of one operation would only wait for each other there.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# On a shared machine any deadline is flaky. "ci" draws the same few examples in every run, the default looks further.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("default")

# Thousands of tests are collected, none of which is garbage: looking through them again and again takes a tenth
# of a run.
gc.disable()

ROOT = Path(__file__).resolve().parent.parent
LONGEST = ("accuracy", "pasted", "execute", "run_check", "strongest", "parallel_runtimes", "grids", "sweep_runs",
           "execute_parallel", "one_answer", "model_command", "golden", "dashboard_partition", "partitioners",
           "cli_manners", "stack_calibration", "capture_suite", "tutorial", "converge", "dashboard_desk", "megatron",
           "engines_agree", "kineto", "capture", "limited", "training")  # fmt: skip
"""Files whose tests take ten seconds and more of a processor, the longest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files (`--no-loadscope-reorder`), so that no process is left with one at the end."""
    order = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but not among what was imported and collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _garbage_is_looked_for_among_a_files_own() -> None:
    """What earlier files left, millions of objects of their modules' caches, is not looked through again: it made every
    collection take a quarter of a second, of which a capture asks for one in each round."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measurements made by others; tests that need it skip where it is absent."""
    folder = (ROOT / os.environ.get("SHARDSCOPE_DATA", "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set SHARDSCOPE_DATA to run this test")
    return folder


@pytest.fixture
def forked_python() -> Iterator[None]:
    """Commands of this interpreter are forked from one that has imported torch; SHARDSCOPE_NEW_PROCESSES=1: started."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux" and not os.environ.get("SHARDSCOPE_NEW_PROCESSES"):
            patch.setattr(subprocess, "Popen", ForkedPopen)
        yield


@pytest.fixture(params=["compiled", "reference"], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each engine in turn, which `simulate` then uses where none is named."""
    from simulator.engine import engine_name

    if request.param == "compiled" and engine_name() != "compiled":
        pytest.skip("no compiled engine: no C compiler here")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHARDSCOPE_ENGINE", request.param)
        yield request.param


@pytest.fixture(scope="module")
def site(store: Any) -> Iterator[str]:
    """The address of a dashboard over the `store` of the test file."""
    from benchmarks.pages.browser import served

    with served(store) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    from benchmarks.pages.browser import chromium

    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A fresh page; what it complains about on its console, or asks of another machine, fails the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda r: page.complaints.append(r.url) if not _local(r.url) else None)
    yield page
    context.close()
    assert page.complaints == []


def _local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))
