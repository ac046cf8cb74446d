"""What builds and publishes the project agrees with itself: version, Makefile, workflows, container, templates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML_FILES = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / "CITATION.cff", ROOT / ".pre-commit-config.yaml"]


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_it_is_yaml_that_holds_something(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_there_is_one_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == PROJECT["version"]
    newest = re.search(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == PROJECT["version"]


def test_every_target_is_phony_and_documented() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony and set(phony[1].split()) == TARGETS
    described = (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / "README.md").read_text()
    assert not [name for name in TARGETS - {"clean", "bench-screens"} if f"make {name}" not in described]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_targets_that_there_are(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    made = re.findall(r"^make ([\w-]+)", "\n".join(step.get("run", "") for step in steps), re.MULTILINE)
    assert made and set(made) <= TARGETS


def test_what_the_gate_runs_is_in_the_workflow() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] in (ROOT / ".github/workflows/ci.yml").read_text()


def test_the_container_serves_the_dashboard_as_a_user_of_its_own() -> None:
    text = (ROOT / "Containerfile").read_text()
    assert '"shardscope", "dashboard", "--host", "0.0.0.0"' in text
    assert text.index("USER shardscope") < text.index("CMD")
    assert PROJECT["scripts"]["shardscope"] == "simulator.cli:main"


def test_newest_python_of_the_workflow_is_a_classifier() -> None:
    versions = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith("Programming Language")}
    assert set(versions["python"]) <= named
    assert PROJECT["requires-python"] == f">={min(versions['python'])}"
