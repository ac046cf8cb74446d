"""One verdict on a step, with one word and one colour wherever it is said; what does not fit is no yardstick."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from small_networks import branches

from dashboard.frame.panels import as_html
from dashboard.pages._explore_strategies import strategies_table, whole_answer
from dashboard.pages._explore_words import badge, baseline_name, verdict
from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Glance, Outcome, glance_of
from dashboard.state.store import Store
from dashboard.words.comparison import results
from dashboard.words.kpis import COLOURS, yardstick
from simulator.report.memory import Fit

NOW = Configuration(profile="net", cluster="dgx-h100", strategy="data", devices=8)


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"net": replace(branches(), device="NVIDIA H100 80GB HBM3")})


def squeezed(outcome: Outcome, share: float) -> Outcome:
    """The same step on devices whose memory it fills to `share`."""
    assert outcome.run is not None and outcome.cluster is not None
    from simulator.run import run

    capacity = round(outcome.run.report.peak_memory_bytes / share)
    devices = tuple(replace(device, memory_bytes=capacity) for device in outcome.cluster.devices)
    cluster = replace(outcome.cluster, devices=devices)
    return replace(outcome, cluster=cluster, run=run(outcome.profile, cluster, outcome.run.plan))


@pytest.mark.parametrize(
    ("share", "fit", "colour"), [(0.5, "fits", "green"), (0.97, "border", "orange"), (1.5, "does not fit", "red")]
)
def test_badge_and_box_have_one_word_and_colour(store: Store, share: float, fit: Fit, colour: str) -> None:
    outcome = squeezed(store.outcome(NOW), share)
    assert outcome.report is not None and outcome.report.fit == fit
    head, box = as_html(badge(outcome)), as_html(verdict(outcome))
    assert f'"badge {colour}"' in head and f">{fit} · " in head
    assert (box == "") == (fit == "fits")
    assert fit == "fits" or f'"verdict {colour}"' in box
    assert ("does not fit" in box) == (fit == "does not fit")
    row = as_html(strategies_table([(NOW, glance_of(outcome))]))
    assert (f", {fit}" in row) == (fit != "fits") and ('"bad"' in row) == (fit == "does not fit")


def test_every_verdict_has_a_colour() -> None:
    assert set(COLOURS) == set(get_args(Fit))


def test_what_cannot_run_is_red(store: Store) -> None:
    outcome = store.outcome(replace(NOW, devices=9, batch_size=8))
    assert outcome.report is None and "cannot run" in as_html(badge(outcome)) and "red" in as_html(verdict(outcome))


def test_what_does_not_fit_is_no_yardstick(store: Store) -> None:
    data, shown = store.outcome(NOW), store.outcome(replace(NOW, strategy="pipeline"))
    full = squeezed(data, 1.5)

    def known(other: Outcome) -> dict[str, Glance]:
        return {"pipeline": glance_of(shown), "data": glance_of(other)}

    assert yardstick(known(data)) is not None and yardstick(known(full)) is None
    said = as_html(whole_answer(shown, known(full)))
    assert "Data parallelism does not fit and is no yardstick" in said and "against data parallelism" not in said
    assert "no yardstick" not in as_html(whole_answer(shown, known(data)))
    rows = [(shown.configuration, glance_of(shown)), (NOW, replace(glance_of(full), step_s=1e-9))]
    assert as_html(strategies_table(rows)).count("<td><strong>") == 1  # the best of those that fit
    assert baseline_name(full, shown).endswith("dgx-h100, does not fit") and "fit" not in baseline_name(data, shown)
    memory = next(row for row in results(full, shown) if row.name == "memory")
    assert (memory.before, memory.after) == ("does not fit", "fits")
