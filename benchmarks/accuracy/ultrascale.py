"""The Ultra-Scale Playbook's runs on 8 to 128 H100 by the stack that was calibrated on them: a sample of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from benchmarks.accuracy._steps import PredictedStep
from benchmarks.library.language_models import published_runs, usable_rows
from benchmarks.pages.published import shared_data, table
from partitioners._grids.measured_rows import read_rows

EVERY, EVERY_FAILED = 6, 12
"""A run of so many is simulated, and of those that failed."""
SAID = ("fits", "border", "does not fit", "refused")


def runs() -> list[PublishedRun]:
    """Those of the clean runs that are simulated."""
    return published_runs(usable_rows()[::EVERY])


def failed_runs() -> list[PublishedRun]:
    """Those that ran out of memory, as far as is known: no run succeeded that needs at least as much."""
    rows = read_rows(shared_data() / "ultrascale" / "visible.csv")
    return published_runs(row for row in rows if row["fail_class"] == "oom_likely" and not row["note"])


def said(steps: Sequence[PredictedStep]) -> list[str]:
    """How many runs the product says to fit, to be at the border, not to fit, or refuses for another rule."""
    counted = Counter(each.fit if each.fit in SAID else "refused" for each in steps)
    return [str(counted[name]) for name in SAID]


def source() -> Source:
    published = runs()
    steps, failed = all_predicted(published), all_predicted(failed_runs()[::EVERY_FAILED])
    verdicts = table(
        ["runs", "in all", *SAID],
        [["measured", str(len(steps)), *said(steps)], ["out of memory", str(len(failed)), *said(failed)]],
    )
    return Source(
        title="Llama-like 1B and 8B on 8 to 128 H100, every grid (Ultra-Scale Playbook)",
        method=f"Every {EVERY}th of the clean runs, on the preset `p5`, as they ran on EFA, by `nanotron-h100`, "
        "which was calibrated on this benchmark where tensor groups lie inside nodes: what the mechanisms leave "
        "over. Pipelines over several nodes by `nanotron-checked-h100`: their hosts need 0.2 ms for each member of "
        "a group before each collective, whatever it sends, as torch's checks of collectives do, which a launch "
        "script of the benchmark's authors turns on. Those with tensor groups of 32 by `nanotron-2024-h100`: they "
        "ran on an older version, whose hosts ask every 0.1 s whether a message's headers went through, as its "
        "source says; 0.26 s a message is the median of what the benchmark's 48 suspect pipelines miss, which come "
        "out 4 % off with it. On 16 nodes some plans take 10 to 25 % longer than neighbours that differ in micro- "
        "batch alone, in no order; of runs with large micro-batches some take one to five times as long as others "
        "and hold less.",
        steps=steps,
        calibrated="eight constants of `nanotron-checked-h100`, which the other two share, and the message",
        commands=published[0].command,
        not_expressed={},
        noise_floor="one plan alone was run twice, in 19.0 and 88.9 s; the second is suspect",
        after=f"Verdicts both ways; of runs that failed for memory, as far as is known, every {EVERY_FAILED}th:\n\n"
        f"{verdicts}",
    )
