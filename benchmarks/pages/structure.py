"""Counts what the rooms, names and words of the code are like. Usage: python -m benchmarks.pages.structure [REVISION]

Of the working tree, or of a git revision. Per package:

    rooms     folders with Python files;  files per room: median and largest
    floors    modules in the longest chain of imports; of rooms likewise, rooms that import each other counted as one
    arrows    pairs of rooms of which one imports the other
    comments  lines with a comment that is no directive, per line that is not blank
    units     public docstrings of functions and classes that name a unit or a shape
    tests     lines of tests per line of code; a test file counts for the highest package that it imports

and over all packages, class names that stand in two files, and functions that assign a name which says nothing.
Imports in `__init__.py`, which re-export, make no chains and no arrows. Lines are those that are not blank.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import networkx as nx

from benchmarks import ROOT
from benchmarks.pages.published import table

PACKAGES = ("simulator", "partitioners", "traces", "dashboard", "shardscope")
"""From the ground up."""
EMPTY_WORDS = ("found", "told", "mine", "place", "one", "given", "chosen")
UNIT = re.compile(
    r"\b(seconds?|hours?|bytes?|bits?|FLOPs?|dollars?|watts?|joules?|ratios?|percent|shapes?|samples?|milliseconds?)\b"
    r"|\b\w+_(s|bytes|per_s|flop)\b|\([a-z_]+(, [a-z_]+)+\)",
    re.IGNORECASE,
)
DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma|!)")
Trees: TypeAlias = Mapping[Path, ast.Module]
Imports: TypeAlias = "nx.DiGraph[Path]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Count rooms, names and words of the code.")
    parser.add_argument("revision", nargs="?", help="a git revision; the working tree where left out")
    revision = parser.parse_args().revision
    if revision is None:
        print(described(ROOT))
        return
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        print(described(Path(folder)))


def described(root: Path) -> str:
    """What is counted in the tree at `root`, as Markdown."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _files(root, PACKAGES)}
    header = ["package", "files", "lines", "rooms", "files per room", "floors of modules", "of rooms", "arrows"]
    header += ["comments", "units", "tests per line"]
    test_lines = lines_of_tests(root)
    rows = [_row(root, package, trees, test_lines[package]) for package in PACKAGES]
    code, tests = sum(_lines(path) for path in trees), sum(test_lines.values())
    words = Counter(name for tree in trees.values() for name in assignments(tree))
    parts = [
        table(header, rows),
        f"Tests per line of code over all: {tests / code:.2f} ({tests:,} and {code:,} lines).",
        f"Class names that stand in two files: {len(doubles := doubled_classes(trees))}"
        + (f" ({', '.join(doubles)})." if doubles else "."),
        "Functions that assign " + ", ".join(f"`{word}`: {words[word]}" for word in EMPTY_WORDS) + ".",
    ]
    return "\n\n".join(parts)


def _row(root: Path, package: str, trees: Trees, tests: int) -> list[str]:
    own = {path: tree for path, tree in trees.items() if path.relative_to(root).parts[0] == package}
    rooms = Counter(path.parent for path in own)
    modules, between = import_graphs(root, own)
    lines = sum(map(_lines, own))
    with_unit, public = map(sum, zip(*(_docstrings(tree) for tree in own.values()), strict=True))
    return [
        package,
        str(len(own)),
        f"{lines:,}",
        str(len(rooms)),
        f"{statistics.median(rooms.values()):.0f}, {max(rooms.values())}",
        str(floors(modules)),
        str(floors(between)),
        str(between.number_of_edges()),
        f"{sum(map(comments, own)) / lines:.2%}",
        f"{with_unit} of {public}",
        f"{tests / lines:.2f}",
    ]


def import_graphs(root: Path, trees: Trees) -> tuple[Imports, Imports]:
    """Who imports whom among the modules, and among the rooms, of one package."""
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in trees}
    modules: Imports = nx.DiGraph()
    rooms: Imports = nx.DiGraph()
    modules.add_nodes_from(trees)
    rooms.add_nodes_from({path.parent for path in trees})
    for path, tree in trees.items():
        targets = {names[name] for name in _imported(tree, names) if path.name != "__init__.py"} - {path}
        modules.add_edges_from((path, target) for target in targets)
        rooms.add_edges_from((path.parent, target.parent) for target in targets if target.parent != path.parent)
    return modules, rooms


def _imported(tree: ast.Module, names: Mapping[str, Path]) -> Iterator[str]:
    """The modules of `names` that a module imports; of `from a import b` the module a.b where it is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            deeper = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in names else node.module for name in deeper if {name, node.module} & set(names))


def floors(graph: Imports) -> int:
    """Nodes in the longest chain; those of a cycle are one."""
    return int(nx.dag_longest_path_length(nx.condensation(graph))) + 1


def doubled_classes(trees: Trees) -> list[str]:
    """Class names that stand in more than one file, sorted."""
    files: dict[str, set[Path]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, set()).add(path)
    return sorted(name for name, places in files.items() if len(places) > 1)


def assignments(tree: ast.Module) -> Iterator[str]:
    """Each of `EMPTY_WORDS` once per function that assigns it or has it as a parameter, nested functions included."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            stored |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
            yield from stored.intersection(EMPTY_WORDS)


def comments(path: Path) -> int:
    """Lines of a file that hold a comment other than a directive to a tool."""
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    return sum(not DIRECTIVE.match(token.string) for token in tokens)


def _docstrings(tree: ast.Module) -> tuple[int, int]:
    """How many public docstrings name a unit or a shape, and how many there are."""
    nodes = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_"))
    texts = [text for node in nodes if (text := ast.get_docstring(node))]
    return sum(UNIT.search(text) is not None for text in texts), len(texts)


def lines_of_tests(root: Path) -> Counter[str]:
    """Lines of tests, helpers included, by the highest package that a file imports; those of none are the lowest's."""
    lines: Counter[str] = Counter()
    for path in _files(root, ("tests",)):
        text = path.read_text(encoding="utf-8")
        imported = [name for name in PACKAGES if re.search(rf"^\s*(from|import) {name}\b", text, re.MULTILINE)]
        lines[(imported or PACKAGES)[-1 if imported else 0]] += _lines(path)
    return lines


def _files(root: Path, folders: tuple[str, ...]) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def _lines(path: Path) -> int:
    return sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
