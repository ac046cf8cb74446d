"""How benchmarks.studies.hypergraph_steps counts cases and names what a plan needs."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.studies import hypergraph_steps
from benchmarks.studies.hypergraph_steps import PRICES_US, JudgedCase, SearchCase, cases, form, rows
from simulator.plan import Plan, Sharding


def test_forty_cases_at_each_price() -> None:
    counts = Counter(case.price_us for case in cases())
    assert counts == dict.fromkeys(PRICES_US, 40)
    assert sum(case.wires in hypergraph_steps.SWITCHES for case in cases()) == 3 * 32
    assert all(case.cluster.workers == case.devices for case in cases())


@pytest.mark.parametrize(
    ("devices", "kind"),
    [
        (((0, 1), (0, 1)), "degrees"),
        (((0, 1), (0,)), "degrees"),
        (((0,), (1, 2)), "groups"),
        (((1, 0), (0, 1)), "map"),
        (((0, 0), (0, 1)), "map"),
    ],
)
def test_a_plans_form_is_what_its_layers_differ_in(devices: tuple[tuple[int, ...], ...], kind: str) -> None:
    shardings = [Sharding(degrees=(len(numbers), 1, 1, 1), devices=numbers) for numbers in devices]
    assert form(Plan(model="m", batch_size=8, placements=dict(zip("ab", shardings, strict=True)))) == kind


def test_rows_count_wins_and_losses_by_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two cases at each price: won by 10 % and lost at 0 us, won by 1 % and even at 5 us, one left out at 10 us."""
    steps_s = {(0, 2): 0.9, (0, 4): 1.1, (5, 2): 0.99, (5, 4): 1.0, (10, 2): 0.5}
    wanted = [SearchCase(network="alexnet", wires="10 Gb/s", devices=d, price_us=p) for p in PRICES_US for d in (2, 4)]

    def results(asked: list[SearchCase]) -> list[JudgedCase]:
        seconds = [(case, steps_s.get((case.price_us, case.devices))) for case in asked]
        return [
            JudgedCase(
                case=case, strongest_s=1.0, strongest="owt", hypergraph_s=s, form="map", bound_s=0.5, search_s=1.0
            )
            for case, s in seconds
            if s is not None
        ]

    monkeypatch.setattr(hypergraph_steps, "cases", lambda: wanted)
    monkeypatch.setattr(hypergraph_steps, "judged_by_workers", results)
    worse, better = rows()
    assert worse[2] == "1 / 0 / 0" and worse[3] == "0" and "1 not judged in time" in worse[0]
    assert better[2] == "1 / 0 / 1" and better[3] == "0.062"
