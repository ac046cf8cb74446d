"""The dashboard's budgets, threefold: a shared machine is slower than the one that they were set for."""

from __future__ import annotations

import pytest

from benchmarks.pages.browser import needs_browser
from dashboard.state.store import Store, bundled
from simulator.files import library


@needs_browser
@pytest.mark.screens
@pytest.mark.skipif("vgg_small" not in library(), reason="the library has no profile vgg_small")
@pytest.mark.filterwarnings("default")  # of the browser's driver
def test_three_times_each_budget_is_kept() -> None:
    from benchmarks.screens.budgets import measured

    for budget in measured(Store(bundled())):
        print(budget)
        assert budget.measured < 3 * budget.most, str(budget)
