"""Damaged files: the same for the same seed, other than what they were made of, and writable."""

from __future__ import annotations

import copy
import json
from random import Random

import pytest

from benchmarks.robustness.drawn_faults import changes
from benchmarks.robustness.mutants import ROOT, Fault, drawn_faults, read_faults
from benchmarks.robustness.mutations import NODE_CHANGES, mutated_bytes, mutated_json, mutated_table, mutated_text

VALUE = {"layers": [{"name": "a", "seconds": 0.5}, {"name": "b", "seconds": 2, "of": [1, 2]}], "batch": 8, "on": True}
TABLE = "name,seconds,bytes\na,0.5,4\nb,2,8\n"


def test_the_listed_faults_are_of_todays_source() -> None:
    assert len(read_faults()) >= 60


SOURCE = '''"""Words 1 + 2."""
from __future__ import annotations
LIMIT: int = 3
def f(a: Callable[[int, int], 3], b: float = 0.5) -> int:
    """More + words."""
    require(a < b, "a", a + b, f"it is {a + b}")
    if not (a == 1 and b > -2):
        raise InputError(f"a is {a + 1}" + "b")
    zip(a, strict=True)
    return max(f(a, b), (a + b) // 2)
'''


def test_rules_draw_faults_of_what_is_computed_and_of_no_words() -> None:
    made = changes(SOURCE)
    faults = {(change.rule, change.sound, change.faulty) for change in made}
    assert faults == {
        ("constant", "3", "4"), ("constant", "0.5", "1.0"), ("comparison", "<", "<="), ("comparison", "==", "!="),
        ("comparison", ">", ">="), ("constant", "1", "2"), ("constant", "2", "3"), ("operator", "-2", "(2)"),
        ("operator", "and", "or"), ("dropped term", "a == 1 and b > -2", "((a == 1))"), ("swapped", "max", "min"),
        ("dropped term", "a == 1 and b > -2", "((b > -2))"),
        ("operator", "not (a == 1 and b > -2)", "(a == 1 and b > -2)"),
        ("swapped", "a, b", "b, a"), ("operator", "+", "-"), ("dropped term", "a + b", "(a)"), ("operator", "//", "/"),
        ("dropped term", "a + b", "(b)"), ("dropped term", "(a + b) // 2", "(a + b)"),
        ("dropped term", "(a + b) // 2", "(2)"),
        ("dropped term", "max(f(a, b), (a + b) // 2)", "(f(a, b))"),
        ("dropped term", "max(f(a, b), (a + b) // 2)", "((a + b) // 2)"),
    }  # fmt: skip
    for change in made:
        fault = Fault(file="", tests=(), sound=change.sound, faulty=change.faulty, at=change.at)
        assert compile(fault.put_into(SOURCE), "", "exec") and fault.put_into(SOURCE) != SOURCE


def test_drawn_faults_are_of_the_seed_and_have_tests_without_digests() -> None:
    first, again, other = (drawn_faults(30, seed) for seed in (1, 1, 2))
    assert first == again != other
    for fault in first:
        assert fault.tests and not any("golden" in name for name in fault.tests)
        assert (ROOT / fault.file).read_text() != fault.put_into((ROOT / fault.file).read_text())


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
