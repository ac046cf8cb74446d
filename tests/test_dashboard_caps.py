"""What a page plans and simulates, up to the last task: by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_networks import branches, chain, switched

from dashboard.state import caps
from dashboard.state.caps import _most_tasks, is_counted, require_size, require_small, searches
from dashboard.state.configuration import Configuration
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.plan import Plan, Sharding
from simulator.runtime import IDEAL
from simulator.workload import Layer

NOW = Configuration(profile="small@0", cluster="cpu-1g", strategy="owt", devices=4)
HALVES = Sharding(degrees=(2, 1, 1, 1), devices=(0, 1))


def plan_of(*shardings: Sharding, microbatches: int = 1) -> Plan:
    placements = dict(zip("abcdefgh", shardings, strict=False))
    return Plan(model="small", batch_size=64, microbatches=microbatches, placements=placements)


def test_the_most_tasks_are_two_passes_of_a_shard_and_a_message_each_way_to_every_other_device() -> None:
    """Halves to halves send nothing; halves to one device a message each way of both."""
    profile = chain([1.0, 1.0, 1.0])
    assert _most_tasks(profile, plan_of(HALVES, HALVES, Sharding(devices=(2,)))) == 4 + 4 * 2 + 2
    assert _most_tasks(profile, plan_of(HALVES, HALVES, Sharding(devices=(2,)), microbatches=4)) == 4 * 14
    quarters = Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 2, 3))
    assert _most_tasks(profile, plan_of(quarters, HALVES, HALVES)) == 8 * 3 + 4 + 4
    for several in (plan_of(quarters, HALVES, HALVES), plan_of(HALVES, quarters, Sharding(devices=(1,)))):
        counted = len(lower(ShardedModel(profile, several), switched([1.0] * 4), IDEAL))
        assert counted <= _most_tasks(profile, several)


@pytest.mark.parametrize(("tasks", "refused"), [(2_000_000, False), (2_000_001, True)])
def test_a_page_simulates_two_million_tasks(tasks: int, refused: bool) -> None:
    if refused:
        with pytest.raises(
            InputError, match=r"the step has at least 2,000,001 tasks: this page simulates up to 2,000,"
        ):
            caps._require_tasks(tasks, "at least ")
    else:
        caps._require_tasks(tasks)


def test_what_is_not_planned_before_its_tasks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passes of ten layers, of each device, or of one where layers stay whole, and of each micro-batch."""
    profile = branches()
    monkeypatch.setattr(caps, "MOST_TASKS", 2 * 10 * 4 * 3)
    require_small(replace(NOW, microbatches=3), profile)
    with pytest.raises(InputError, match="at least 320 tasks"):
        require_small(replace(NOW, microbatches=4), profile)
    require_small(replace(NOW, strategy="pipeline", microbatches=12), profile)
    with pytest.raises(InputError, match="at least 260 tasks"):
        require_small(replace(NOW, strategy="pipeline", microbatches=13), profile)
    monkeypatch.setattr(caps, "MOST_TASKS", 2 * 10 * 4)
    require_small(NOW, profile)
    for strategy in ("data", "fsdp", "megatron", "hypergraph"):
        require_small(replace(NOW, strategy=strategy, microbatches=1024), profile)
    assert searches("hypergraph") and not searches("owt")


@pytest.mark.parametrize(
    ("strategy", "most"), [("layerwise", 32), ("hypergraph", 256), ("metis", 256), ("spatial", 256), ("shuffle", 256)]
)
def test_searches_are_for_so_many_devices(strategy: str, most: int) -> None:
    require_small(replace(NOW, strategy=strategy, devices=most), branches())
    with pytest.raises(InputError, match=f"plans {strategy} for up to {most} devices"):
        require_small(replace(NOW, strategy=strategy, devices=most + 1), branches())


def test_tasks_of_many_micro_batches_are_those_of_two_and_of_each_further_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where the bound does not say that they are few."""
    profile, cluster = chain([1.0, 1.0, 1.0]), switched([1.0] * 4)
    quarters = Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 2, 3))
    several = plan_of(quarters, HALVES, HALVES, microbatches=8)
    counted = [len(lower(ShardedModel(profile, replace(several, microbatches=n)), cluster, IDEAL)) for n in (1, 8)]
    for most, refused in ((counted[1], False), (counted[1] - 1, True)):
        monkeypatch.setattr(caps, "MOST_TASKS", most)
        if refused:
            with pytest.raises(InputError, match=f"the step has {counted[1]} tasks"):
                require_size(profile, several, cluster, IDEAL)
        else:
            require_size(profile, several, cluster, IDEAL)
    monkeypatch.setattr(caps, "MOST_LOWERED", _most_tasks(profile, replace(several, microbatches=1)) - 1)
    with pytest.raises(InputError, match=f"the step has {_most_tasks(profile, several)} tasks"):
        require_size(profile, several, cluster, IDEAL)
    monkeypatch.setattr(caps, "MOST_LOWERED", _most_tasks(profile, replace(several, microbatches=1)))
    monkeypatch.setattr(caps, "MOST_TASKS", counted[0] - 1)
    with pytest.raises(InputError, match=f"the step has {counted[0]} tasks"):
        require_size(profile, replace(several, microbatches=1), cluster, IDEAL)


def test_what_a_step_has_once_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of gradients, which the bound leaves out: a plan within it is not counted."""
    profile, cluster = branches(), switched([1.0] * 2)
    plan = Plan(
        model="small", batch_size=64, microbatches=8, placements=dict.fromkeys(map(_name, profile.layers), HALVES)
    )
    monkeypatch.setattr(caps, "MOST_TASKS", 2 * 2 * 10 * 8)
    require_size(profile, plan, cluster, IDEAL)
    tasks = len(lower(ShardedModel(profile, plan), cluster, IDEAL))
    monkeypatch.setattr(caps, "MOST_TASKS", 2 * 2 * 10 * 8 - 1)
    assert tasks > 2 * 2 * 10 * 8
    with pytest.raises(InputError, match=f"the step has {tasks} tasks"):
        require_size(profile, plan, cluster, IDEAL)


def _name(layer: Layer) -> str:
    return layer.name


def test_a_plan_is_counted_where_it_has_many_tasks_and_equal_replicas() -> None:
    profile, cluster = chain([1.0, 1.0]), switched([1.0] * 2)
    alike, apart = plan_of(HALVES, HALVES), plan_of(Sharding(devices=(0,)), Sharding(devices=(1,)))
    few = _most_tasks(profile, alike)
    assert is_counted(profile, alike, cluster, IDEAL, few - 1) and not is_counted(profile, alike, cluster, IDEAL, few)
    assert not is_counted(profile, apart, cluster, IDEAL, 1)
