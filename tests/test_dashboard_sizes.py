"""The rail says which times of the step shown were not measured at their size. No browser."""

from __future__ import annotations

from dataclasses import replace

from small_networks import branches

from dashboard.frame.remarks import remarks
from dashboard.state.store import Store


def test_the_profile_s_remark_has_the_sizes_and_the_interval_their_band() -> None:
    store = Store({"small": replace(branches(), device="Tesla V100")})
    alone = replace(store.default(), strategy="data", devices=1, microbatches=1, batch_size=8)
    assert remarks(store.outcome(alone))["profile"].text == "measured on Tesla V100"
    split = store.outcome(replace(alone, devices=4))
    assert split.run is not None and split.run.report.step_band_s is not None
    text = remarks(split)["profile"].text
    assert text.startswith("measured on Tesla V100; times at 2 of 8 samples: typical curve of GPUs, ")
    assert split.interval is not None and {"sizes", "model"} <= set(split.interval.parts)
