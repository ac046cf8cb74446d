"""The Ultra-Scale Playbook's runs on 8 to 128 H100 by the stack that was calibrated on them: a sample of them."""

from __future__ import annotations

from benchmarks.accuracy._grids import all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.language_models import published_runs, usable_rows

EVERY = 6
"""A run of so many is simulated."""


def source() -> Source:
    runs = published_runs(usable_rows()[::EVERY])
    return Source(
        title="Llama-like 1B and 8B on 8 to 128 H100, every grid (Ultra-Scale Playbook)",
        method=f"Every {EVERY}th of the clean runs, by the stack `nanotron-h100`, which was calibrated on this "
        "benchmark: what the mechanisms leave over. What calibrations leave over on sizes and numbers of nodes that "
        "they did "
        "not see stands in [language_models.md](language_models.md).",
        steps=all_predicted(runs),
        calibrated="nine constants of `nanotron-h100`",
        commands=runs[0].command,
        not_expressed={},
        noise_floor="one plan alone was run twice, in 19.0 and 88.9 s; the second is suspect",
    )
