"""`import shardscope`, `python -m shardscope`, and both from a wheel."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT
from test_architecture import PACKAGES

import shardscope
from simulator.errors import REQUIREMENTS, MissingExtraError
from simulator.version import version


def python(*words: str, folder: Path = ROOT) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_public_names_are_those_of_their_homes() -> None:
    assert shardscope.__all__ == dir(shardscope)
    assert all(getattr(shardscope, name).__name__ == name for name in shardscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = shardscope.nothing


def test_the_docstrings_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (shardscope.__doc__ or "").split("\n\n")[1]
    exec("\n".join(line.strip() for line in text.splitlines()), {})
    assert 1 < float(capsys.readouterr().out) < 2


def test_importing_it_loads_nothing_heavy() -> None:
    assert python("-c", "import sys, shardscope; print({'numpy', 'yaml', 'rich'} & set(sys.modules))") == "set()\n"


def test_it_is_the_command_line() -> None:
    assert python("-m", "shardscope", "--version") == f"shardscope {version()}\n"
    assert "usage: shardscope " in python("-m", "shardscope", "--help")


def test_the_wheel_holds_it(tmp_path: Path) -> None:
    """Built without the compiled engine, whose hook is tried elsewhere."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(packages["packages"]) == PACKAGES
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (built,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(built).namelist()
    assert {"shardscope/__init__.py", "shardscope/__main__.py", "simulator/cli/__init__.py"} <= set(names)


def test_what_to_install_is_what_the_extras_name() -> None:
    """With the pip of this interpreter, as no index has Shardscope itself."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {line.partition(";")[0].strip() for lines in extras.values() for line in lines}
    assert set(REQUIREMENTS.values()) <= named
    message = str(MissingExtraError.of("capture", "torch"))
    assert message == f"capture needs torch, which is not installed: {sys.executable} -m pip install 'torch>=2.6'"
    assert not [
        path
        for path in ROOT.glob("[a-z]*/**/*.py")
        if path.parts[-2] != "tests" and "install 'shardscope[" in path.read_text()
    ]
