"""Fixtures that several test files share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# On a shared machine any deadline is flaky. "ci" draws the same examples in every run, the default looks further.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("default")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measurements made by others; tests that need it skip where it is absent."""
    folder = (ROOT / os.environ.get("SHARDSCOPE_DATA", "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set SHARDSCOPE_DATA to run this test")
    return folder


@pytest.fixture(params=["compiled", "reference"], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each engine in turn, which `simulate` then uses where none is named."""
    from simulator.engine import engine_name

    if request.param == "compiled" and engine_name() != "compiled":
        pytest.skip("no compiled engine: no C compiler here")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHARDSCOPE_ENGINE", request.param)
        yield request.param
