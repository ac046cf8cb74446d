"""The direction of imports: nouns know nothing of strategies, hardware or figures, and start-up stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = """
    simulator
    simulator.network
    simulator.collectives
    simulator.lowering.schedules simulator.lowering.exchange
    simulator.lowering.costs simulator.lowering.parameters
    simulator.lowering.symmetry
    simulator.lowering.sharded_model
    simulator.lowering.tasks
    simulator.lowering simulator.engine simulator.language_models
    simulator.report
    simulator.run
    simulator.elastic simulator.convergence simulator.sweep simulator.exports
    simulator.readers
    simulator.studies
    partitioners._network partitioners._judge partitioners._hypergraphs
    partitioners._layerwise partitioners._stages
    partitioners._search
    partitioners
    partitioners._grids
    traces.results traces.zoo traces.lab
    traces.capture
    traces.imports
    benchmarks.device_card traces.runs.executor
    traces.runs.torch_runtimes
    traces.calibrate
    traces.validation
    traces.elastic traces.convergence
    dashboard.state
    dashboard.words
    dashboard.figures
    dashboard.frame
    dashboard.pages
    dashboard.app
    simulator.cli
    shardscope
"""
"""The rooms from the ground up; those of one line know nothing of each other. The nouns are on the ground."""
FLOOR = {room: number for number, line in enumerate(FLOORS.strip().splitlines()) for room in line.split()}
PACKAGES = {"simulator", "partitioners", "traces", "dashboard", "shardscope"}
FORBIDDEN = {"traces": {"partitioners"}, "dashboard": {"simulator.cli"}}
"""What a package does not import although it stands below."""
HEAVY = {"torch", "dash", "plotly", "kahypar", "mtkahypar", "pydantic", "yaml", "rich"}
FILES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that import statements among `nodes` name; of `from a import b` the module a.b where it is one."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "write imports in full"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else node.module for name in names)


def room_of(module: str) -> str:
    """The room that a module of the project stands in: its folder, or itself where it has a floor of its own."""
    return module if module in FLOOR else module.rpartition(".")[0] or module


@cache
def imports_of(path: Path) -> tuple[list[str], list[str]]:
    """What a file imports as it is loaded, and all that it imports."""
    tree = ast.parse((ROOT / path).read_text())
    return list(imported(tree.body)), list(imported(ast.walk(tree)))


@pytest.mark.parametrize("module", [name for name, path in MODULES.items() if path.name != "__init__.py"])
def test_rooms_import_only_what_stands_below(module: str) -> None:
    room, package = room_of(module), module.split(".")[0]
    for name in imports_of(MODULES[module])[1]:
        if name.split(".")[0] not in PACKAGES:
            assert name.split(".")[0] not in ("benchmarks", "tests"), f"{module} imports {name}, which does not ship"
            continue
        other = room_of(name)
        assert other == room or FLOOR[other] < FLOOR[room], f"{module} imports {name}, which stands no lower"
        assert not any(name.startswith(barred) for barred in FORBIDDEN.get(package, ())), f"{module} imports {name}"
        if package == "dashboard" and name.startswith("traces"):
            assert other in ("traces.results", "traces.imports"), f"{module} imports {name}, which may load torch"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_heavy_libraries_stay_where_they_belong(path: Path) -> None:
    package = path.parts[0]
    if package in ("simulator", "partitioners"):
        assert not {name.split(".")[0] for name in imports_of(path)[0]} & HEAVY
    if package != "traces" or path.parts[1] == "results":
        assert "torch" not in {name.split(".")[0] for name in imports_of(path)[1]}


def test_results_and_recordings_load_without_torch() -> None:
    rooms = "traces.results, dashboard.state.opening"
    program = f"import sys; sys.modules['torch'] = None; import {rooms}; assert 'dash' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_simulator_loads_nothing_heavy_before_it_is_used() -> None:
    program = "import sys; import simulator; assert not {'numpy', 'networkx', 'simpy', 'yaml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=str)
def test_every_room_has_a_map(path: Path) -> None:
    """Registries say how a file joins them; every other room names each of its files."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    assert text
    if "registry" in text or path.parts[:2] == ("dashboard", "pages"):
        return
    entries = (ROOT / path).parent.iterdir()
    names = [entry for entry in entries if entry.suffix == ".py" or (entry / "__init__.py").exists()]
    for entry in names:
        if not entry.name.startswith("_"):
            assert re.search(rf"(?<!\w){entry.stem}(?!\w)", text), f"{path} does not name {entry.name}"


def test_no_module_shadows_the_standard_library() -> None:
    names = {path.stem for path in FILES} | {path.parent.name for path in FILES}
    assert not names & set(sys.stdlib_module_names) - {"__init__", "__main__"}
