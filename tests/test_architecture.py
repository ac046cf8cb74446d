"""The direction of imports: nouns know nothing of strategies, hardware or figures, and start-up stays light."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"simulator", "partitioners", "traces", "dashboard"}
MAY_IMPORT = {
    "simulator": set(),
    "simulator/cli": PACKAGES,
    "partitioners": {"simulator"},
    "traces": {"simulator"},
    "dashboard": PACKAGES,
}
HEAVY = {"torch", "dash", "plotly", "kahypar", "mtkahypar", "pydantic", "yaml", "rich"}
FILES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[str]:
    """The top-level names that import statements among `nodes` bring in."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "write imports in full"
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_one_way(path: Path) -> None:
    tree = ast.parse((ROOT / path).read_text())
    package = path.parts[0]
    part = "simulator/cli" if path.with_suffix("").parts[:2] == ("simulator", "cli") else package
    anywhere = set(imported(ast.walk(tree)))
    assert anywhere & PACKAGES <= MAY_IMPORT[part] | {package}
    assert "torch" not in anywhere or package == "traces"
    if package in ("simulator", "partitioners"):
        assert not set(imported(tree.body)) & HEAVY


def test_no_module_shadows_the_standard_library() -> None:
    names = {path.stem for path in FILES} | {path.parent.name for path in FILES}
    assert not names & set(sys.stdlib_module_names) - {"__init__"}
