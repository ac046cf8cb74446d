"""Batches larger than the devices: time and memory in closed form, and gradients equal to those of many devices."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from plans import planned
from small_networks import BATCH, chain, layer, network, switched

from simulator import cli
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.plan import Plan
from simulator.plan_rules import MOST_MICROBATCHES
from simulator.studies.accumulation import best, choices
from simulator.workload import Profile

SAVED = 4096  # bytes per sample that the layer keeps for its backward pass
ONE = network(replace(layer("a", seconds=8.0, parameter_bytes=1000), saved_bytes=BATCH * SAVED))


def choices_on(devices: int, batch_size: int, profile: Profile = ONE, **limits: int) -> list[tuple[int, float, bool]]:
    cluster = switched([1.0] * devices)
    return [
        (choice.microbatches, choice.peak_memory_bytes, choice.fits)
        for choice in choices(profile, cluster, planner(profile, cluster, batch_size), batch_size, **limits)
    ]


def planner(profile: Profile, cluster: Cluster, batch_size: int):  # type: ignore[no-untyped-def]
    def plan_of(microbatches: int) -> Plan:
        return planned("data", profile, cluster, batch_size=batch_size, microbatches=microbatches)

    return plan_of


def test_memory_falls_with_the_micro_batch() -> None:
    """Parameters, gradients and momentum stay; saved activations and the output's gradient go with the samples.

    From the second micro-batch on, a gradient is held beside the sum that it is added to.
    """
    gradient = 8 * 4 * 4 * 4
    expected = {count: 3e3 + (count > 1) * 1e3 + (16 // count) * (SAVED + gradient) for count in (1, 2, 4, 8, 16)}
    assert {count: peak for count, peak, _ in choices_on(1, 16)} == pytest.approx(expected)


def test_a_limit_picks_the_fewest_micro_batches_that_fit() -> None:
    """Whose step is the shortest where fixed costs repeat; here a step takes as long in any parts."""
    limit = 4 * 10**3 + 4 * (SAVED + 512)
    cluster = switched([1.0]).with_memory(limit)
    made = choices(ONE, cluster, planner(ONE, cluster, 16), 16)
    assert [choice.fits for choice in made] == [False, False, True, True, True]
    choice = best(made)
    assert (choice.microbatches, choice.microbatch_size, choice.step_s) == (4, 4, pytest.approx(16.0))


def test_logical_workers_decide_the_shares() -> None:
    """8 of them on 2 devices: each device stands for 4, so micro-batches are 4 or a multiple."""
    assert [count for count, *_ in choices_on(2, 32, workers=8)] == [4, 8, 16]


@pytest.mark.parametrize(
    "limits, complaint",
    [
        ({"workers": 3}, "workers is 3: it is a multiple of the 2 devices"),
        ({"workers": 6}, "workers is 6: it divides the batch of 32"),
    ],
)
def test_what_does_not_divide_is_refused(limits: dict[str, int], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        choices_on(2, 32, **limits)


def test_no_step_has_more_micro_batches_than_one_may_have() -> None:
    counts = [count for count, *_ in choices_on(1, 10**9)]
    assert counts == [count for count in range(1, MOST_MICROBATCHES + 1) if 10**9 % count == 0]


def test_where_nothing_fits_the_complaint_says_what_is_needed() -> None:
    cluster = switched([1.0]).with_memory(10**3)
    with pytest.raises(InputError, match=r"16 of them need the least, 8.41 KiB"):
        best(choices(ONE, cluster, planner(ONE, cluster, 16), 16))


def test_the_command_prints_its_choice(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["accumulate", "vgg_small", "--cluster", "cpu-1g", "--devices", "1", "--batch-size", "256"]
    assert cli.main([*command, "--memory", "64MiB", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    choice = printed["choices"][printed["best"]]
    assert choice["fits"] and choice["peak_memory_bytes"] <= 64 * 2**20
    assert not printed["choices"][0]["fits"]
    assert cli.main([*command[:-1], "32"]) == 0
    assert "best: 1 micro-batch of 32, " in capsys.readouterr().out
    assert cli.main([*command, "--memory", "1MiB"]) == 2
    assert "use more devices" in capsys.readouterr().err


@pytest.mark.parametrize("devices, workers", [(1, 4), (2, 4)])
def test_gradients_equal_those_of_as_many_devices(devices: int, workers: int) -> None:
    """Executed: `workers` devices at once, and micro-batches on fewer devices, end with the same parameters."""
    torch = pytest.importorskip("torch", reason="torch is not installed; make test installs it")
    from tiny_networks import MIXED, profile_of
    from training import script_of, sharded

    profile, few, many = profile_of(MIXED, 8), switched([1.0] * devices), switched([1.0] * workers)
    choice = choices(profile, few, planner(profile, few, 8), 8, workers=workers)[0]
    assert choice.microbatches == workers // devices and choice.whole_shares
    losses, parameters, _ = sharded(script_of(choice.plan, few), 3)
    expected_losses, expected, _ = sharded(script_of(planner(profile, many, 8)(1), many), 3)
    assert losses == pytest.approx(expected_losses, rel=1e-9)
    for name, value in expected.items():
        assert torch.allclose(parameters[name], value, rtol=1e-9, atol=1e-12), name


def test_stages_take_micro_batches_too() -> None:
    profile, cluster = chain([1.0] * 4), switched([1.0] * 2)

    def plan_of(count: int) -> Plan:
        return planned("pipeline", profile, cluster, judged=False, batch_size=16, microbatches=count)

    candidates = choices(profile, cluster, plan_of, 16)
    assert [choice.microbatches for choice in candidates] == [1, 2, 4, 8]
    assert best(candidates).step_s == min(choice.step_s for choice in candidates)
