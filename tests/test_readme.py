"""The README's commands exist and parse, and every command is in the README."""

from __future__ import annotations

import re
import shlex

import pytest
from conftest import ROOT

from simulator import cli

TEXT = (ROOT / "README.md").read_text()
LINES = re.findall(r"^(?:\$ |    )?(?:sudo )?shardscope ([^\n#]+)", TEXT, re.MULTILINE)


def test_every_command_is_in_the_readme() -> None:
    missing = [name for name in cli.commands() if f"shardscope {name}" not in TEXT]
    assert not missing


@pytest.mark.parametrize("line", LINES)
def test_commands_parse(line: str) -> None:
    argv = shlex.split(line)
    assert argv[0] in cli.commands()
    if not hasattr(cli.commands()[argv[0]], "main"):
        cli.parse(argv)


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target
