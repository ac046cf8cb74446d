"""Damaged files: sound ones of every format are accepted; 300 seeded mutations are refused in one line or sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.robustness.fuzz import _dumped, fuzz, tried
from benchmarks.robustness.fuzz_formats import FuzzedFormat, formats

SEED, MUTATIONS = 1, 300


@pytest.mark.parametrize("kind", formats(), ids=lambda kind: kind.name)
def test_sound_files_are_accepted(kind: FuzzedFormat, tmp_path: Path) -> None:
    path = tmp_path / f"sound{kind.suffix}"
    sound = _dumped(kind.sound, kind.suffix) if kind.suffix in (".json", ".yaml") else kind.sound
    path.write_bytes(sound if isinstance(sound, bytes) else sound.encode())
    assert tried(kind, path) == ("accepted", "")


def test_damaged_files_are_refused_in_one_line_or_give_sound_reports() -> None:
    tally, failures = fuzz(range(MUTATIONS), SEED)
    assert not failures
    assert sum(tally.values()) == MUTATIONS
    outcomes = {outcome for _, outcome in tally}
    assert outcomes == {"refused", "accepted"}
