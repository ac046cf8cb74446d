"""data, greedy and shuffle, drawn: one digit per layer, its device."""

from __future__ import annotations

import pytest
from plans import planned
from small_networks import BATCH, branches, chain, switched

from simulator.errors import InputError
from simulator.plan import Plan


def drawn(plan: Plan) -> str:
    return "".join(str(device) for sharding in plan.placements.values() for device in sharding.devices)


def test_data_puts_every_layer_on_every_device() -> None:
    plan = planned("data", branches(), switched([1.0] * 3, servers=1), batch_size=BATCH)
    assert {(p.degrees, p.devices) for p in plan.placements.values()} == {((3, 1, 1, 1), (0, 1, 2))}


@pytest.mark.parametrize(("batch_size", "microbatches"), [(3, 1), (6, 2)])
def test_data_needs_a_sample_for_each_device(batch_size: int, microbatches: int) -> None:
    rule = f"gives 3 samples to 4 devices, and each needs one; use a batch size of at least {4 * microbatches}"
    with pytest.raises(InputError, match=rule):
        planned("data", branches(), switched([1.0] * 4), batch_size=batch_size, microbatches=microbatches)


def test_greedy_gives_the_longest_layer_to_the_least_loaded() -> None:
    #       in the order e (5), a (4), c (3), d (3), b (2): loads 5 4 | 5 7 | 8 7 | 8 9
    profile = chain([4.0, 2.0, 3.0, 3.0, 5.0])
    assert drawn(planned("greedy", profile, switched([1.0, 1.0]), batch_size=BATCH)) == "11100"


def test_greedy_counts_a_fast_device_as_fast() -> None:
    assert drawn(planned("greedy", chain([1.0] * 6), switched([1.0, 2.0]), batch_size=BATCH)).count("1") == 4


def test_shuffle_draws_by_seed() -> None:
    profile, cluster = chain([1.0] * 26), switched([1.0] * 4)
    plans = [drawn(planned("shuffle", profile, cluster, batch_size=BATCH, seed=seed)) for seed in (0, 0, 1)]
    assert plans[0] == plans[1] != plans[2]
    assert set(plans[0]) == set("0123")
