"""benchmarks.pages.structure counts rooms, floors, arrows and names rightly."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.pages.structure import (
    assignments,
    comments,
    described,
    doubled_classes,
    floors,
    import_graphs,
    lines_of_tests,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two rooms of which one imports the other, a chain of three modules, a cycle of two, a class name twice."""
    texts = {
        "simulator/__init__.py": "from simulator.top import Top",
        "simulator/low/__init__.py": '"""Map."""',
        "simulator/low/ground.py": "class Ground: ...  # why\nclass Twice: ...  # noqa: E701",
        "simulator/low/middle.py": "from simulator.low import ground, other",
        "simulator/low/other.py": "import simulator.low.middle",
        "simulator/top.py": "from simulator.low.middle import ground\n\nclass Twice: ...",
        "partitioners/__init__.py": "def load():\n    '''Seconds.'''\n    found = [one for one in ()]",
        "traces/a.py": "def f():\n    '''Nothing.'''",
        "dashboard/a.py": "def f():\n    '''An array of shape (devices, links).'''",
        "shardscope/__init__.py": "from simulator import top",
        "tests/test_a.py": "import simulator\nfrom traces import a\n\nx = 1",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    return tmp_path


def test_chains_and_arrows_by_hand(root: Path) -> None:
    trees = {path: ast.parse(path.read_text()) for path in (root / "simulator").rglob("*.py")}
    modules, rooms = import_graphs(root, trees)
    assert floors(modules) == 3  # ground, {middle, other}, top
    assert floors(rooms) == 2 and rooms.number_of_edges() == 1
    assert doubled_classes(trees) == ["Twice"]
    assert comments(root / "simulator" / "low" / "ground.py") == 1


def test_words_and_tests_by_hand(root: Path) -> None:
    tree = ast.parse((root / "partitioners" / "__init__.py").read_text())
    assert sorted(assignments(tree)) == ["found", "one"]
    assert lines_of_tests(root) == {"traces": 3}
    page = described(root)
    assert "| traces | 1 | 2 | 1 | 1, 1 | 1 | 1 | 0 | 0.00% | 0 of 1 | 1.50 |" in page
    assert "| dashboard | 1 | 2 | 1 | 1, 1 | 1 | 1 | 0 | 0.00% | 1 of 1 | 0.00 |" in page
    assert "two files: 1 (Twice)" in page and "`found`: 1, `told`: 0" in page
