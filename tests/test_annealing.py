"""Annealing by its drawn numbers: how warm it is, what it changes and how often, from which plan each round goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import exp

import laws
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, plans, profiles
from small_networks import chain, switched

from partitioners._search.annealing import Annealing, Scored, is_plain, may_have_stages, with_microbatches
from partitioners._search.layer_groups import layer_groups
from simulator.cluster import Cluster
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding
from simulator.run import step_seconds
from simulator.workload import Profile


def test_annealing_cools_from_two_hundredths_to_a_two_thousandth(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is 1 % worse is taken with the probability exp(-1 % / temperature): of 160 changes 18, 6, 1 and none."""
    profile, cluster, rounds = chain([1.0]), switched([1.0] * 4), 200
    start = Scored(plan=planned("model", profile, cluster, batch_size=8), score=1.0)
    taken, scores = list[bool](), {start.plan.strategy: 1.0}

    def change(_: Annealing, plan: Plan, others: Sequence[Plan]) -> Plan:
        """Named by its number, so that what it starts from shows whether the one before was taken."""
        taken.append(plan.strategy == f"{len(taken) - 1}")
        scores[f"{len(taken) - 1}"] = 1.01 * scores[plan.strategy]
        return replace(plan, strategy=f"{len(taken) - 1}")

    monkeypatch.setattr(Annealing, "_changed", change)
    annealing = Annealing(profile, cluster, fixed=False, seed=0).rounds([start], lambda plan: scores[plan.strategy])
    for _ in islice(annealing, 160 * rounds):
        pass
    for quarter in range(4):
        trials = range(40 * quarter, 40 * (quarter + 1))
        likely = sum(exp(-0.01 / (0.02 * (0.0005 / 0.02) ** (trial / 160))) for trial in trials)
        taken_then = sum(taken[160 * number + trial + 1] for number in range(rounds) for trial in trials if trial < 159)
        assert taken_then / rounds == pytest.approx(likely, rel=0.1, abs=0.1)


@pytest.mark.parametrize("scores", [(2.0, 3.0, 5.0), (5.0, 2.0, 3.0)])
def test_every_other_round_starts_from_the_best_and_those_between_from_each_start_in_turn(
    scores: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that take ten times as long are never taken: a round ends where it began."""
    start = planned("model", chain([1.0]), switched([1.0]), batch_size=8)
    starts = [Scored(plan=replace(start, strategy=f"{score}"), score=score) for score in scores]
    began: list[str] = []

    def change(_: Annealing, plan: Plan, others: Sequence[Plan]) -> Plan:
        began.append(plan.strategy)
        assert [each.strategy for each in others] == ["2.0", "3.0", "5.0"]
        return plan

    monkeypatch.setattr(Annealing, "_changed", change)
    annealing = Annealing(chain([1.0]), switched([1.0]), fixed=False, seed=0)
    bests = list(islice(annealing.rounds(starts, lambda plan: 10 * float(plan.strategy)), 8 * 160))
    assert {best.score for best in bests} == {2.0}
    assert began[::160] == began[159::160] == ["2.0", "2.0", "2.0", "3.0", "2.0", "5.0", "2.0", "2.0"]


@pytest.mark.parametrize("last", [None, 1, 160])
def test_annealing_ends_with_a_round_in_which_nothing_can_be_simulated(
    last: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, asked = Scored(plan=planned("model", chain([1.0]), switched([1.0]), batch_size=8), score=1.0), list[Plan]()

    def score(plan: Plan) -> float | None:
        asked.append(plan)
        return 10.0 if len(asked) == last else None

    monkeypatch.setattr(Annealing, "_changed", lambda _, plan, others: plan)
    rounds = Annealing(chain([1.0]), switched([1.0]), fixed=True, seed=0).rounds([start], score)
    assert len(list(rounds)) == len(asked) == (160 if last is None else 320)


def halved(*devices: int) -> Sharding:
    """By height, as no cut of a search is."""
    return Sharding(degrees=(1, 1, 2, 1), devices=devices)


def test_what_is_changed_and_how_often() -> None:
    """Of six layers a run as long as each next one is taken with 7 / 10: placed as the layer before or after it with
    3 / 10, where there is one, as in another plan with 1 / 5, cut anew otherwise; a tenth of all are micro-batches."""
    profile, cluster, tries = chain([1.0] * 6), switched([1.0] * 8), 20_000
    layers = "abcdef"
    assert layer_groups(profile) == [(name,) for name in layers]
    placements = {name: halved(i, i + 1) for i, name in enumerate(layers)}
    plan = Plan(model="small", batch_size=64, microbatches=8, placements=placements)
    other = replace(plan, placements=dict.fromkeys(layers, halved(0, 7)))
    annealing, kinds, lengths = Annealing(profile, cluster, fixed=False, seed=1), Counter[str](), Counter[int]()
    for _ in range(tries):
        changed = annealing._changed(plan, [other])
        if changed is None:
            kinds["nothing"] += 1
            continue
        moved = [name for name in layers if changed.placements[name] != plan.placements[name]]
        if changed.microbatches != plan.microbatches:
            kinds[f"{changed.microbatches} micro-batches"] += 1
            assert not moved
            continue
        first, last = layers.index(moved[0]), layers.index(moved[-1])
        way = changed.placements[moved[0]]
        if way == halved(0, 7):
            kinds["another plan"] += 1
            lengths[len(moved)] += first == 0
        elif way.degrees[2] == 2:
            before, after = (placements.get(layers[i] if 0 <= i < 6 else "") for i in (first - 1, last + 1))
            assert way in (before, after)
            kinds["before" if way == before else "after"] += 1
        else:
            kinds["cut"] += 1
        assert moved == list(layers[first : last + 1]) or way.degrees[2] == 1
        assert changed.schedule == "dataflow"
    behind = sum(1 - 0.7**left for left in range(6)) / 6  # whether a run ends before the last layer
    likely = {
        "4 micro-batches": 0.05,
        "16 micro-batches": 0.05,
        "another plan": 0.9 * 0.2,
        "before": 0.9 * 0.15 * 5 / 6,
        "after": 0.9 * 0.15 * behind,
        "nothing": 0.9 * 0.15 * (2 - 5 / 6 - behind),
    }
    assert {kind: kinds[kind] / tries for kind in likely} == pytest.approx(likely, abs=0.01)
    of_first = [lengths[length] / sum(lengths.values()) for length in range(1, 7)]
    assert of_first == pytest.approx([0.3, 0.21, 0.147, 0.103, 0.072, 0.168], abs=0.06)


@settings(max_examples=laws.examples(20, 100), deadline=None)
@given(profiles(), clusters(), st.data(), st.booleans())
def test_what_is_changed_can_run(profile: Profile, cluster: Cluster, data: st.DataObject, fixed: bool) -> None:
    """Whatever the plans at hand, with the micro-batches of the first where these are fixed."""
    plan, other = (data.draw(plans(profile, cluster, every_axis=True)) for _ in range(2))
    other = replace(other, batch_size=plan.batch_size, microbatches=plan.microbatches)
    annealing = Annealing(profile, cluster, fixed=fixed, seed=data.draw(st.integers(0, 9)))
    groups = layer_groups(profile)
    for _ in range(10):
        changed = annealing._changed(plan, [plan, other])
        if changed is None:
            continue
        assert changed != plan and (changed.microbatches == plan.microbatches or not fixed)
        numbers = [
            number
            for number, group in enumerate(groups)
            if any(changed.placements[name] != plan.placements[name] for name in group)
        ]
        assert not numbers or changed.microbatches == plan.microbatches
        assert step_seconds(profile, cluster, changed) >= 0


@pytest.mark.parametrize(
    ("batch_size", "microbatches", "parts", "factor", "count"),
    [
        (12, 2, 3, 2.0, 4),
        (12, 2, 4, 2.0, None),
        (12, 2, 3, 0.5, 1),
        (12, 4, 1, 2.0, None),
        (12, 1, 1, 0.5, None),
        (12, 3, 1, 2.0, 6),
        (12, 6, 1, 2.0, 12),
    ],
)
def test_micro_batches_are_doubled_and_halved_where_every_part_keeps_a_sample(
    batch_size: int, microbatches: int, parts: int, factor: float, count: int | None
) -> None:
    cut = Sharding(degrees=(parts, 1, 1, 1), devices=tuple(range(parts)))
    plan = Plan(model="small", batch_size=batch_size, microbatches=microbatches, placements={"a": cut})
    changed = with_microbatches(plan, factor)
    assert changed == (count and replace(plan, microbatches=count))
    uneven = {"a": cut, "b": Sharding(degrees=(2, 1, 1, 1), devices=(0, 1), samples=(1, 2))}
    assert with_microbatches(replace(plan, placements=uneven), factor) is None


def test_stages_are_layers_by_sample_on_several_sets_of_devices() -> None:
    whole, other, both = Sharding(devices=(0,)), Sharding(devices=(1,)), Sharding(degrees=(2, 1, 1, 1), devices=(0, 1))
    by_channel = Sharding(degrees=(1, 2, 1, 1), devices=(0, 1))
    for shardings, may in (
        ((whole, other), True),
        ((whole, both), True),
        ((whole, whole), False),
        ((both, Sharding(degrees=(2, 1, 1, 1), devices=(1, 0))), False),
        ((whole, by_channel), False),
        ((whole, halved(0, 1)), False),
    ):
        plan = Plan(model="small", batch_size=8, placements=dict(zip("ab", shardings, strict=True)))
        assert may_have_stages(plan) is may


def test_a_plain_plan_has_placements_micro_batches_and_a_schedule_alone() -> None:
    plan = Plan(model="small", batch_size=8, microbatches=2, placements={"a": Sharding(devices=(0,))}, schedule="gpipe")
    assert is_plain(plan)
    more = ({"states": ParameterStates(stage=1)}, {"recomputed": (("a",),)}, {"exchange": "collectives"})
    for fields in more:
        assert not is_plain(replace(plan, **fields))  # type: ignore[arg-type]
