"""The contiguous dynamic program against published optima."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.studies.placements import PUBLISHED_MS, optimum_ms, read


@pytest.mark.parametrize("name", sorted(PUBLISHED_MS))
def test_reproduces_the_published_optimum(shared_data: Path, name: str) -> None:
    """To the digits that were published."""
    instance = read(shared_data / "dnn-partitioning" / f"{name}_training.json")
    assert optimum_ms(instance) == pytest.approx(PUBLISHED_MS[name], rel=2e-6)
