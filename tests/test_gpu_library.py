"""The shipped GPU profiles are what the importers make of the published measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.library.gpu_library import NOTICES, SHIPPED, build, notices
from simulator.files import read_profile, write_profile


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_what_its_importer_makes(
    name: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))
    write_profile(build(name), tmp_path / "made.json")
    assert read_profile(tmp_path / "made.json") == read_profile(name)


def test_the_notices_are_up_to_date(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))
    assert NOTICES.read_text(encoding="utf-8") == notices()
