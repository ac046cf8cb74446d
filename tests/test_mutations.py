"""Damaged files: the same for the same seed, other than what they were made of, and writable."""

from __future__ import annotations

import copy
import json
from random import Random

import pytest

from benchmarks.mutants import read_faults
from benchmarks.mutations import NODE_CHANGES, mutated_bytes, mutated_json, mutated_table, mutated_text

VALUE = {"layers": [{"name": "a", "seconds": 0.5}, {"name": "b", "seconds": 2, "of": [1, 2]}], "batch": 8, "on": True}
TABLE = "name,seconds,bytes\na,0.5,4\nb,2,8\n"


def test_the_listed_faults_are_of_todays_source() -> None:
    assert len(read_faults()) >= 60


def test_the_same_seed_damages_alike() -> None:
    for seed in range(200):
        for change, content in ((mutated_json, VALUE), (mutated_table, TABLE), (mutated_text, TABLE)):
            first, second = (change(content, Random(seed)) for _ in range(2))
            assert repr(first) == repr(second)
        assert mutated_bytes(TABLE.encode(), Random(seed)) == mutated_bytes(TABLE.encode(), Random(seed))


def test_values_stay_as_they_were_and_copies_can_be_written() -> None:
    original, texts = copy.deepcopy(VALUE), []
    for seed in range(1000):
        texts.append(json.dumps(mutated_json(VALUE, Random(seed))))
    assert original == VALUE
    assert len(set(texts)) > 500 and texts.count(json.dumps(VALUE)) < 50


@pytest.mark.parametrize("change", dict.fromkeys(NODE_CHANGES), ids=lambda change: change.__name__)
@pytest.mark.parametrize("value", [None, True, 3, 10**400, 0.5, "text", "", [], {}, [1], {"a": 1}, VALUE], ids=repr)
def test_every_change_takes_every_kind_of_value(change: object, value: object) -> None:
    assert callable(change)
    json.dumps([change(value, Random(seed)) for seed in range(30)])


@pytest.mark.parametrize("text", ["", "\n", "a", "a,b", TABLE])
def test_any_text_can_be_damaged(text: str) -> None:
    damaged = {mutated_table(text, Random(seed)) for seed in range(300)}
    damaged |= {mutated_text(text, Random(seed)) for seed in range(300)}
    assert len(damaged) > 3
    assert len({mutated_bytes(text.encode(), Random(seed)) for seed in range(300)}) > 1
