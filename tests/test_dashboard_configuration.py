"""A configuration in a URL: whole, clamped, and never able to break the page."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.state.configuration import DEGREES, FACTORS, NUMBERS, Configuration, from_query, from_values

DEFAULT = Configuration(profile="small@0", cluster="cpu-1g", strategy="data", devices=4)


def test_a_query_holds_every_control_and_reads_back() -> None:
    changed = replace(
        DEFAULT, strategy="pipeline", devices=8, microbatches=16, schedule="gpipe", overlap=False, imbalance=0.03,
        inter_bandwidth=0.125, effort=0.5, seed=7, batch_size=96, optimizer="adam",
    )  # fmt: skip
    query = changed.query()
    assert query.startswith("v=1&profile=small@0&")
    assert all(f"{field.name}=" in query for field in fields(Configuration))
    assert from_query("?" + query, DEFAULT) == (changed, [])


def test_what_nobody_has_set_is_left_to_strategy_profile_and_cluster() -> None:
    """One device of each degree, all links as the cluster has them."""
    set_to = {field.name: getattr(DEFAULT, field.name) for field in fields(Configuration)}
    named = {"profile": "small@0", "cluster": "cpu-1g", "strategy": "data", "devices": 4, "plan": ""}
    own = {"schedule": "own", "optimizer": "own", "batch_size": None, "microbatches": None, "imbalance": None}
    zero = dict.fromkeys(("seed", "expert_tensor", "chunks", "shard_group", "zero_stage"), 0)
    usual = {"collective": "ring", "overlap": True, "recomputation": "none", "effort": 0.1}
    assert set_to == {**named, **own, **zero, **usual, **dict.fromkeys((*FACTORS, *DEGREES), 1)}


@pytest.mark.parametrize(
    ("query", "field", "value", "complaint"),
    [
        ("devices=9999", "devices", 1024, "devices 9999 is out of range; using 1024"),
        ("devices=0", "devices", 1, "out of range"),
        ("devices=four", "devices", 4, "devices is 'four': it is a whole number; using 4"),
        ("inter_bandwidth=nan", "inter_bandwidth", 1.0, "inter_bandwidth is 'nan': it is a number; using 1"),
        ("inter_bandwidth=inf", "inter_bandwidth", 1024, "out of range"),
        ("strategy=alchemy", "strategy", "data", "strategy is 'alchemy': it is one of "),
        ("cluster=../../etc/passwd", "cluster", "cpu-1g", "it is one of "),
        ("overlap=maybe", "overlap", True, "1 or 0"),
        ("v=2", "devices", 4, "version '2'"),
    ],
)
def test_a_bad_value_is_told_and_survived(query: str, field: str, value: object, complaint: str) -> None:
    configuration, problems = from_query(query, DEFAULT)
    assert getattr(configuration, field) == value
    assert len(problems) == 1 and complaint in problems[0]


RANGES = {
    "devices": (1, 1024), "batch_size": (1, 65536), "microbatches": (1, 1024), "imbalance": (0.005, 1),
    "effort": (0.02, 1), "seed": (0, 10**6), "expert_tensor": (0, 1024), "chunks": (0, 64), "shard_group": (0, 1024),
    "zero_stage": (0, 3), **dict.fromkeys(FACTORS, (1 / 1024, 1024)), **dict.fromkeys(DEGREES, (1, 1024)),
}  # fmt: skip


@pytest.mark.parametrize("field", NUMBERS)
def test_a_number_is_taken_from_the_first_of_its_range_to_the_last(field: str) -> None:
    """And only whole ones where it counts something; nothing is a number where the strategy or profile says it."""
    low, high = RANGES[field]
    kept = [from_values({field: value}, DEFAULT) for value in (low, high, low - 1, high + 1, high * 0.7)]
    counts = field not in (*FACTORS, "imbalance", "effort")
    expected = [low, high, low, high, round(high * 0.7) if counts else high * 0.7]
    assert [getattr(configuration, field) for configuration, _ in kept] == expected
    assert [len(problems) for _, problems in kept] == [0, 0, 1, 1, 0]
    automatic, problems = from_values({field: "auto"}, DEFAULT)
    assert (len(problems) == 0) == (field in ("batch_size", "microbatches", "imbalance"))
    assert getattr(automatic, field) == getattr(DEFAULT, field)


@pytest.mark.parametrize(("raw", "on"), [(True, True), (False, False), ("1", True), ("0", False)])
def test_a_switch_is_on_or_off_as_a_page_or_a_link_has_it(raw: object, on: bool) -> None:
    assert from_values({"overlap": raw}, replace(DEFAULT, overlap=not on)) == (replace(DEFAULT, overlap=on), [])


def test_empty_controls_mean_automatic() -> None:
    configuration, problems = from_values({"batch_size": "", "microbatches": None, "imbalance": ""}, DEFAULT)
    assert configuration.batch_size is configuration.microbatches is configuration.imbalance is None
    assert problems == []


def test_a_blank_in_a_link_takes_the_place_of_what_is_set() -> None:
    set_to = replace(DEFAULT, batch_size=64, microbatches=4, imbalance=0.1, plan="mine@0")
    configuration, problems = from_query("?batch_size=&microbatches=auto&plan=", set_to)
    assert configuration == replace(set_to, batch_size=None, microbatches=None, plan="") and not problems


def test_names_of_links_are_cut_and_so_are_values_in_complaints() -> None:
    assert from_values({"profile": "x" * 201, "plan": "y" * 200}, DEFAULT)[0].profile == "x" * 200
    (problem,) = from_values({"overlap": "z" * 41}, DEFAULT)[1]
    assert problem == f"overlap is {'z' * 40!r}: it is 1 or 0; using 1"
    (problem,) = from_values({"batch_size": "many"}, DEFAULT)[1]
    assert problem.endswith("using auto")


def test_a_configuration_names_its_planner_and_machine_and_factors_of_tiers() -> None:
    now = replace(DEFAULT, plan="mine@1a2b", cluster="lab@3c4d", inter_bandwidth=0.5, inter_latency=2.0)
    assert (DEFAULT.planner, now.planner) == ("data", "plan mine")
    assert (DEFAULT.machine, now.machine) == ("4 × cpu-1g", "4 × lab")
    factors = {tier: now.link_factors(tier) for tier in ("inter", "intra", "link")}
    assert factors == {"inter": (0.5, 2.0), "intra": (1.0, 1.0), "link": (1.0, 1.0)}
    assert "&inter_bandwidth=0.333333&" in replace(now, inter_bandwidth=1 / 3).query()


@given(st.text(max_size=80), st.dictionaries(st.sampled_from([f.name for f in fields(Configuration)]), st.text()))
def test_no_query_raises(query: str, values: dict[str, str]) -> None:
    configuration, _ = from_query(query, DEFAULT)
    again, problems = from_values(values, configuration)
    assert from_query(again.query(), DEFAULT)[0] == again or problems
