"""One name, one thing: no class name stands twice; values and functions are named after what they hold or do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("simulator", "partitioners", "traces", "dashboard", "shardscope")
NAMED = (*PACKAGES, "benchmarks", "tests")
EMPTY_WORDS = {"found", "told", "mine", "given", "place", "one", "chosen"}
"""They say that somebody found or told something, not what it is."""
SUSPECT = re.compile(rf"\b(?:{'|'.join(sorted(EMPTY_WORDS))})\b *(?:[],:=)]|in\b|\()")
"""What stands wherever one of them is assigned; mostly they stand in sentences."""
FILES = {package: sorted(path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")) for package in NAMED}


@cache
def classes_of(package: str) -> dict[str, set[Path]]:
    """The files of a package in which each class name stands, private ones and those inside functions included."""
    files: dict[str, set[Path]] = {}
    for path in FILES[package]:
        for name in re.findall(r"^ *class (\w+)", (ROOT / path).read_text(), re.MULTILINE):
            files.setdefault(name, set()).add(path)
    return files


def assigned(text: str) -> Iterator[tuple[str, int]]:
    """(name, line) of every function, parameter and variable that is assigned, in loops and comprehensions too; of a
    text that holds none of EMPTY_WORDS none."""
    for node in ast.walk(ast.parse(text)) if SUSPECT.search(text) else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno


@pytest.mark.parametrize(("package", "other"), list(combinations_with_replacement(PACKAGES, 2)))
def test_no_class_name_stands_in_two_files(package: str, other: str) -> None:
    here, there = classes_of(package), classes_of(other)
    doubles = {name: sorted(map(str, here[name] | there[name])) for name in here.keys() & there.keys()}
    assert not {name: files for name, files in doubles.items() if len(files) > 1}


@pytest.mark.parametrize("path", [path for package in NAMED for path in FILES[package]], ids=str)
def test_values_are_named_after_what_they_hold(path: Path) -> None:
    assert not [f"{name} in line {line}" for name, line in assigned((ROOT / path).read_text()) if name in EMPTY_WORDS]


def test_assignments_of_every_form_are_seen() -> None:
    text = "def found(told):\n    here: int = 1\n    for mine, given in ():\n        [x for x in (y := [])]"
    assert {name for name, _ in assigned(text)} == {"found", "told", "here", "mine", "given", "x", "y"}
