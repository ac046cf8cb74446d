"""A configuration in a URL: whole, clamped, and never able to break the page."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.state.configuration import Configuration, from_query, from_values

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


@pytest.mark.parametrize(
    ("query", "field", "value", "complaint"),
    [
        ("devices=9999", "devices", 1024, "devices 9999 is out of range; using 1024"),
        ("devices=0", "devices", 1, "out of range"),
        ("devices=four", "devices", 4, "not usable"),
        ("inter_bandwidth=nan", "inter_bandwidth", 1.0, "not a number"),
        ("inter_bandwidth=inf", "inter_bandwidth", 1024, "out of range"),
        ("strategy=alchemy", "strategy", "data", "known: "),
        ("cluster=../../etc/passwd", "cluster", "cpu-1g", "known: "),
        ("overlap=maybe", "overlap", True, "1 or 0"),
        ("v=2", "devices", 4, "version '2'"),
    ],
)
def test_a_bad_value_is_told_and_survived(query: str, field: str, value: object, complaint: str) -> None:
    configuration, problems = from_query(query, DEFAULT)
    assert getattr(configuration, field) == value
    assert len(problems) == 1 and complaint in problems[0]


def test_empty_controls_mean_automatic() -> None:
    configuration, problems = from_values({"batch_size": "", "microbatches": None, "imbalance": ""}, DEFAULT)
    assert configuration.batch_size is configuration.microbatches is configuration.imbalance is None
    assert problems == []


@given(st.text(max_size=80), st.dictionaries(st.sampled_from([f.name for f in fields(Configuration)]), st.text()))
def test_no_query_raises(query: str, values: dict[str, str]) -> None:
    configuration, _ = from_query(query, DEFAULT)
    again, problems = from_values(values, configuration)
    assert from_query(again.query(), DEFAULT)[0] == again or problems
